"""Log levels that operators set for a limited time, for all processes of all hosts: stored in the global database.

The thread that renews a process's leases reads them every few seconds (`tenants.backend.leases`), so requests read nothing.
They end by themselves, also in a process that cannot read the database: debug lines never stay on by mistake.
"""

import logging
import os
import time
from datetime import timedelta
from typing import Final

import structlog
from django.db import DatabaseError, connection, transaction
from django.utils.timezone import now
from psycopg import Error as DriverError

from identity_platform.api import log_levels
from identity_platform.audit.writer import record_for_platform
from tenants import queries
from tenants.models import LogLevel

log = structlog.get_logger("identity.tenants")

DEFAULT_MINUTES: Final = 15
MOST_MINUTES: Final = 240
# Until all processes have read a change: `settings.CONNECTION_LEASE_SECONDS` / 6, and a moment.
APPLIED_WITHIN_SECONDS: Final = 6

# What the last `refresh` has read.
_applied: dict[str, str] = {}


def refresh() -> None:
    """Apply the current levels to this process. Without the database, those that it knows last until their end."""
    try:
        connection.ensure_connection()
        read_at = time.monotonic()
        rows = queries.log_levels()
    except (DatabaseError, DriverError):
        # The caller's own statement says so. Before `prepare` of the first release that has the table there is none.
        return
    numbers = logging.getLevelNamesMapping()
    log_levels.replace(
        {area: log_levels.TimedLevel(numbers[level.upper()], read_at + seconds) for area, level, seconds in rows}
    )
    global _applied
    applied = {area or "platform": level for area, level, _ in rows}
    if applied != _applied:
        _applied = applied
        log.info("log_levels_changed", pid=os.getpid(), levels=applied)


def set_level(*, level: str, area: str = log_levels.PLATFORM, minutes: int = DEFAULT_MINUTES) -> LogLevel:
    """Set the level of the platform, or of one area, for so many minutes. `area` and `level` are known ones."""
    until = now() + timedelta(minutes=minutes)
    with transaction.atomic():
        row, _ = LogLevel.objects.update_or_create(area=area, defaults={"level": level, "until": until})
        details = {"area": area or "platform", "level": level, "until": until}
        record_for_platform("log_level.set", target=("platform", ""), details=details)
    log.warning("log_level_set", area=area or "platform", set_to=level, until=until)
    return row


def reset_level(*, area: str = log_levels.PLATFORM) -> bool:
    """End the level of the platform, or of one area; return whether there was one."""
    with transaction.atomic():
        ended, _ = LogLevel.objects.filter(area=area, until__gt=now()).delete()
        if ended:
            record_for_platform("log_level.reset", target=("platform", ""), details={"area": area or "platform"})
    if ended:
        log.warning("log_level_reset", area=area or "platform")
    return ended > 0


def list_levels() -> list[LogLevel]:
    """Return the levels that apply now: the platform's first, then those of areas by name."""
    return list(LogLevel.objects.filter(until__gt=now()).order_by("area"))

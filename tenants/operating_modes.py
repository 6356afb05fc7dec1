"""Read-only and maintenance mode, of the platform or of one database server: one rule that every entry point asks.

`check` is the rule for tenants: `TenantContext.check` calls it, so the API, the console, hosted pages, commands and jobs obey.
Writes to the global database are rejected in requests only (`tenants.middleware.mode_middleware`): commands are how operators
do the work that the mode is for. A process reads the modes at most once a second, so a mode applies everywhere within about two
seconds.
"""

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import psycopg
import structlog
from django.db import DatabaseError, InterfaceError, connection, transaction

from identity_platform import shared_facts
from identity_platform.audit.writer import record_for_platform
from identity_platform.postgresql.row_errors import first_or
from tenants import queries
from tenants.errors import MaintenanceMode, ReadOnlyMode, UnknownServer
from tenants.models import DatabaseServer, OperatingMode
from tenants.states import ALLOWED_IN, Mode, Purpose

log = structlog.get_logger("identity.tenants")

LONGEST_REASON: Final = 200
_READ_EVERY_SECONDS: Final = 1.0
# While the global database does not respond, each look would hold a request for seconds.
_AFTER_FAILURE_SECONDS: Final = 5.0
_SHARE_EVERY_SECONDS: Final = 3600.0
_FACT: Final = "modes"


@dataclass(frozen=True, slots=True)
class ActiveMode:
    """A mode, and its announced end."""

    mode: Mode
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class ActiveModes:
    """The modes of the platform and of the database servers (by id)."""

    platform: ActiveMode | None = None
    servers: Mapping[int, ActiveMode] = field(default_factory=dict)
    # What else every request needs of the global database: the revisions of the servers, and the tenants whose copies lag.
    server_revisions: Mapping[int, int] = field(default_factory=dict)
    lagging: frozenset[UUID] = frozenset()


_known = ActiveModes()
_read_again_at = 0.0
_in_background = _has_read = False
# What was shared last, and when it is shared again.
_last_shared: tuple[ActiveModes, float] = ActiveModes(), 0.0
_reading = threading.Lock()


def current() -> ActiveModes:
    """Return the modes as this process knows them.

    Unless a thread reads them (`read_in_background`), that costs two statements a second, and none inside a transaction.
    """
    if time.monotonic() < _read_again_at or connection.in_atomic_block or not _reading.acquire(blocking=False):
        return _known
    return _read_while_holding()


def refresh() -> None:
    """Read the modes now, in the thread that does so every second."""
    if _reading.acquire(blocking=False):
        _read_while_holding()


def read_in_background() -> None:
    """From now on a thread calls `refresh`: no request waits while the global database does not respond."""
    global _in_background
    _in_background = True


def wait_until_read() -> None:
    """Wait until every process has read what was committed before. Not in a transaction, whose changes they cannot read."""
    forget()
    if not connection.in_atomic_block:
        time.sleep(2 * _READ_EVERY_SECONDS)


def _read_while_holding() -> ActiveModes:
    global _known, _read_again_at, _has_read
    try:
        _known, _has_read = _read(), True
        _share(_known)
        _read_again_at = math.inf if _in_background else time.monotonic() + _READ_EVERY_SECONDS
    except (DatabaseError, InterfaceError, psycopg.Error) as problem:
        # The modes that are known stay; a process that has read none takes those of another one. Before `prepare` of the
        # first release that has them there is no table.
        if not isinstance(problem, psycopg.errors.UndefinedTable):
            connection.close_if_unusable_or_obsolete()
            _known = _known if _has_read else shared_facts.read(_FACT, _from_fact) or ActiveModes()
        _read_again_at = math.inf if _in_background else time.monotonic() + _AFTER_FAILURE_SECONDS
    finally:
        _reading.release()
    return _known


def forget() -> None:
    """Read the modes again at the next look."""
    global _read_again_at
    _read_again_at = 0.0


def _read() -> ActiveModes:
    modes = {row.server_id: ActiveMode(Mode(row.mode), row.until) for row in queries.operating_modes()}
    of_servers = {server_id: mode for server_id, mode in modes.items() if server_id is not None}
    return ActiveModes(modes.get(None), of_servers, *queries.placements())


def _share(modes: ActiveModes) -> None:
    """Share the modes with processes that start while the global database is away."""
    global _last_shared
    moment = time.monotonic()
    if _last_shared[0] == modes and moment < _last_shared[1]:
        return
    _last_shared = modes, moment + _SHARE_EVERY_SECONDS
    limits = [(None, modes.platform), *modes.servers.items()]
    value = {
        "modes": [(server, mode.mode, mode.until) for server, mode in limits if mode is not None],
        "revisions": [*modes.server_revisions.items()],
        "lagging": [*modes.lagging],
    }
    shared_facts.write(_FACT, value)


def _from_fact(value: dict[str, Any]) -> ActiveModes:
    modes = {
        server: ActiveMode(Mode(mode), datetime.fromisoformat(until) if until else None)
        for server, mode, until in value["modes"]
    }
    of_servers = {server: mode for server, mode in modes.items() if server is not None}
    return ActiveModes(modes.get(None), of_servers, dict(value["revisions"]), frozenset(map(UUID, value["lagging"])))


def revision_of(server_id: int) -> int:
    """Return the revision of a database server, 0 if this process has not read it."""
    return current().server_revisions.get(server_id, 0)


def copies_lag(tenant_id: UUID) -> bool:
    """Return whether rights were taken away that the copies in the tenant's database still have."""
    return tenant_id in current().lagging


# --- the rule --------------------------------------------------------------------------------------------------------


def error_of(active: ActiveMode, *, is_server: bool = False) -> ReadOnlyMode:
    """Return the error of a mode."""
    kind = MaintenanceMode if active.mode is Mode.MAINTENANCE else ReadOnlyMode
    return kind(active.until, is_server=is_server)


def rejection(purpose: Purpose, server_id: int) -> ReadOnlyMode | None:
    """Return why a tenant on this server may not be entered for this purpose now, or None."""
    modes = current()
    if modes.platform is not None and purpose not in ALLOWED_IN[modes.platform.mode]:
        return error_of(modes.platform)
    of_server = modes.servers.get(server_id)
    if of_server is not None and purpose not in ALLOWED_IN[of_server.mode]:
        return error_of(of_server, is_server=True)
    return None


def check(purpose: Purpose, server_id: int) -> None:
    """Raise ReadOnlyMode or MaintenanceMode if a tenant on this server may not be entered for this purpose now."""
    if (error := rejection(purpose, server_id)) is not None:
        raise error


def check_platform() -> None:
    """Raise ReadOnlyMode or MaintenanceMode while the platform has a mode, before work that no caller waits for."""
    if (active := current().platform) is not None:
        raise error_of(active)


def error_of_writes(server_id: int) -> ReadOnlyMode | None:
    """Return the error of writes to databases on the server, whichever purpose they are for, or None."""
    modes = current()
    if (of_server := modes.servers.get(server_id)) is not None:
        return error_of(of_server, is_server=True)
    if modes.platform is not None and modes.platform.mode is Mode.READ_ONLY:
        return error_of(modes.platform)
    return None


def closed_servers() -> list[int]:
    """Return the servers (ids) with a mode: background work leaves their tenants alone."""
    return list(current().servers)


def is_background_paused() -> bool:
    """Return whether background work waits, as the platform has a mode."""
    return current().platform is not None


# --- starting and ending ---------------------------------------------------------------------------------------------


def start_mode(
    *, mode: Mode, server: str | None = None, until: datetime | None = None, reason: str = ""
) -> OperatingMode:
    """Limit the platform, or the database server of this name, in place of the mode that it has. Raises UnknownServer."""
    with transaction.atomic():
        row = _server(server)
        values = {"mode": mode, "until": until, "reason": reason}
        started, _ = OperatingMode.objects.update_or_create(server=row, defaults=values)
        details = {"mode": mode, "server": server, "until": until, "reason": reason}
        record_for_platform("operating_mode.started", target=_target(row), details=details)
    log.warning("operating_mode_started", mode=mode, server=server)
    forget()
    return started


def end_mode(*, server: str | None = None) -> bool:
    """End the mode of the platform, or of the server; return whether it had one. Raises UnknownServer."""
    with transaction.atomic():
        row = _server(server)
        ended = OperatingMode.objects.filter(server=row).first()
        if ended is not None:
            ended.delete()
            details = {"mode": ended.mode, "server": server}
            record_for_platform("operating_mode.ended", target=_target(row), details=details)
    if ended is not None:
        log.warning("operating_mode_ended", mode=ended.mode, server=server)
    forget()
    return ended is not None


def list_modes() -> list[OperatingMode]:
    """Return the modes: the platform's first, then those of servers by name."""
    return sorted(OperatingMode.objects.select_related("server"), key=lambda row: row.server.name if row.server else "")


def _server(name: str | None) -> DatabaseServer | None:
    return None if name is None else first_or(DatabaseServer.objects.filter(name=name), UnknownServer)


def _target(server: DatabaseServer | None) -> tuple[str, object]:
    return ("database_server", server.pk) if server else ("platform", "")

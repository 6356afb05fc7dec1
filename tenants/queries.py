"""What every process reads from the global database at intervals, whichever request or thread happens to be the first.

The driver executes these statements, not a cursor of Django: they belong to no request, and are not among its statements.
"""

from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.db import connection

_MODES: Final = "SELECT server_id, mode, until FROM tenants_operatingmode"
_PLACEMENTS: Final = (
    "SELECT (SELECT coalesce(json_agg(json_build_array(id, revision)), '[]')::text FROM tenants_databaseserver),"
    " (SELECT coalesce(json_agg(tenant_id), '[]')::text FROM tenants_tenantdatabase WHERE copies_lag)"
)
_LOG_LEVELS: Final = (
    "SELECT area, level, EXTRACT(EPOCH FROM until - now())::float8 FROM tenants_loglevel WHERE until > now()"
)


class StoredMode(NamedTuple):
    """An operating mode of a server, or of the platform, and its announced end."""

    server_id: int | None
    mode: str
    until: datetime | None


class StoredLogLevel(NamedTuple):
    """The log level of an area, and how many seconds it still lasts by the clock of the database."""

    area: str
    level: str
    seconds_left: float


def operating_modes() -> list[StoredMode]:
    """Return the operating modes. Raises errors of Django and of the driver."""
    return [StoredMode(*row) for row in _rows(_MODES)]


def placements() -> tuple[dict[int, int], frozenset[UUID]]:
    """Return the revisions of the database servers (by id), and the tenants whose copies lag (`tenants.records`).

    Raises errors of Django and of the driver.
    """
    ((revisions, lagging),) = _rows(_PLACEMENTS)
    return dict(orjson.loads(revisions)), frozenset(map(UUID, orjson.loads(lagging)))


def log_levels() -> list[StoredLogLevel]:
    """Return the log levels that have not ended. Raises errors of Django and of the driver."""
    return [StoredLogLevel(*row) for row in _rows(_LOG_LEVELS)]


def _rows(statement: str) -> list[tuple[Any, ...]]:
    connection.ensure_connection()
    raw = connection.connection
    assert raw is not None  # just opened
    rows: list[tuple[Any, ...]] = raw.execute(statement).fetchall()
    return rows

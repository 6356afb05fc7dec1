"""What the jobs and pages of operators read of a database server, over a direct connection to it.

Each statement reads the server's own catalogs or settings, or the mark in it, for which there are no models.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.conf import settings

from identity_platform.postgresql.statements import fetch_row
from tenants.database_servers.servers import Connection, connect_for_maintenance, parameters
from tenants.models import DatabaseServer

_OPEN_CONNECTIONS: Final = "(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')"
_MOST_CONNECTIONS: Final = "current_setting('max_connections')::int"
# How many connections roles like the platform's may open: without those reserved for superusers and for roles with
# pg_use_reserved_connections (PostgreSQL 16).
FREE_FOR_PLATFORM: Final = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
  - coalesce(current_setting('reserved_connections', true), '0')::int
"""
_STATE: Final = f"""
SELECT {_OPEN_CONNECTIONS},
  {_MOST_CONNECTIONS} - current_setting('superuser_reserved_connections')::int, ({FREE_FOR_PLATFORM})
"""
_FACTS: Final = f"""
SELECT current_setting('server_version'), {_OPEN_CONNECTIONS}, {_MOST_CONNECTIONS}, (SELECT count(*) FROM pg_database),
  current_setting('wal_level')
"""
_GLOBAL_DATABASE: Final = f"""
SELECT current_setting('server_version'), pg_database_size(current_database()), {_OPEN_CONNECTIONS}, {_MOST_CONNECTIONS}
"""
# Without `track_counts` nothing is counted.
_WRITES: Final = """
SELECT datname, tup_inserted + tup_updated + tup_deleted FROM pg_stat_database
WHERE starts_with(datname, %s) AND current_setting('track_counts')::boolean
"""
_RAISE: Final = """
UPDATE server_mark SET revision = greatest(revision, %s), beats = greatest(beats, %s) WHERE installation = %s AND epoch <= %s
"""
_AND_HIGHER: Final = " AND revision < %s"


class ConnectionCounts(NamedTuple):
    """How many connections of clients a server has, and how many it allows."""

    used: int
    most: int


class ServerState(NamedTuple):
    """The same, and how many of them the platform may open (`FREE_FOR_PLATFORM`)."""

    used: int
    most: int
    free_for_platform: int


class ServerVersionAndUse(NamedTuple):
    """What a server says about itself for a support bundle."""

    postgresql: str
    connections: int
    max_connections: int
    databases: int
    wal_level: str


class GlobalDatabaseUse(NamedTuple):
    """What the server of the global database says about itself and that database."""

    postgresql: str
    bytes: int
    connections: int
    max_connections: int


class Counters(NamedTuple):
    """The counters of a server's mark."""

    revision: int
    beats: int


@contextmanager
def connection_to(server: DatabaseServer, database: str) -> Iterator[Connection]:
    """Open a direct autocommit connection to one database."""
    params = parameters(server.pk, server.revision, direct=True)
    with connect_for_maintenance(params | {"dbname": database}) as raw:
        raw.execute("SET statement_timeout = 0")
        yield raw


def connection_counts(raw: Connection) -> ConnectionCounts:
    """Return the open connections and their limit."""
    return ConnectionCounts(*_row(raw, f"SELECT {_OPEN_CONNECTIONS}, {_MOST_CONNECTIONS}"))


def free_for_platform(raw: Connection) -> int:
    """Return how many connections roles like the platform's may open."""
    (number,) = _row(raw, FREE_FOR_PLATFORM)
    return int(number)


def server_state(raw: Connection) -> ServerState:
    """Return the open connections, their limit without those of superusers, and the platform's share of it."""
    return ServerState(*_row(raw, _STATE))


def version_and_use(raw: Connection) -> ServerVersionAndUse:
    """Return version, connections, databases and level of the log."""
    return ServerVersionAndUse(*_row(raw, _FACTS))


def global_database_use() -> GlobalDatabaseUse:
    """Return version, size and connections of the global database, over the process's own connection."""
    return GlobalDatabaseUse(*fetch_row("default", _GLOBAL_DATABASE))


def wal_level(raw: Connection) -> str:
    """Return the level of the server's log; `logical` is what an online move needs."""
    (level,) = _row(raw, "SELECT current_setting('wal_level')")
    return str(level)


def may_create_databases(raw: Connection) -> bool:
    """Return whether the role of the connection can create databases."""
    may = raw.execute("SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
    return may == (True,)


def has_extension(raw: Connection, name: str) -> bool:
    """Return whether the server has an extension, whether or not the database uses it."""
    return raw.execute("SELECT 1 FROM pg_available_extensions WHERE name = %s", [name]).fetchone() is not None


def rows_written(raw: Connection) -> list[tuple[str, int]]:
    """Return the installation's databases, each with the number of rows ever written in it; none if the server counts none."""
    return raw.execute(_WRITES, [settings.TENANT_DATABASE_PREFIX]).fetchall()


def lock_session(raw: Connection, number: int) -> None:
    """Wait for the advisory lock of this number, and take it until the connection ends (PostgreSQL documentation 13.3.5)."""
    raw.execute("SELECT pg_advisory_lock(%s)", [number])


def raise_counters(raw: Connection, counters: Counters, *, installation: UUID, epoch: int, if_higher: bool) -> bool:
    """Raise the counters of the server's mark to these, never lower them; return whether the mark took them.

    The mark of another installation or of a later epoch stays; with `if_higher` also one with this revision or a higher
    one. Raises psycopg.errors.UndefinedTable without a mark.
    """
    statement, values = (_RAISE + _AND_HIGHER, [counters.revision]) if if_higher else (_RAISE, [])
    return bool(raw.execute(statement, [*counters, installation, epoch, *values]).rowcount)


def _row(raw: Connection, statement: str) -> tuple[Any, ...]:
    row = raw.execute(statement).fetchone()
    assert row is not None  # every statement here that calls this returns one
    return row

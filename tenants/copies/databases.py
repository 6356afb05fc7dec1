"""Databases on a server: list, copy, drop, and lock for a job. All on direct connections.

A job's lock is an advisory lock of the connection that does the job's work (PostgreSQL documentation 13.3.5). If the process
is killed, the server releases the lock once that connection's statement has ended, so the next run neither waits for a dead
process nor meets one that is still copying.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psycopg
from django.conf import settings
from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from tenants.backend.pool import POOL
from tenants.database_servers import fences, marks, replication, servers
from tenants.database_servers.queries import connection_to
from tenants.entering.schema import schema_version, upgrade
from tenants.entering.target import DatabaseTarget
from tenants.errors import CopyFailed, JobRunning
from tenants.models import DatabaseServer

Raw = servers.Connection

TEMPLATE_JOB = "template"
WARM_POOL_JOB = "warm pool"
# A killed process's connection takes a moment to end on the server.
LOCK_SECONDS = 2.0
DROP_TRIES = 10
# How long to wait for a session to terminate.
SESSION_SECONDS = 5
# How long the transactions of requests may go on before their sessions are terminated.
_TRANSACTION_SECONDS = 0.5
# The connection limit of a database whose DROP was interrupted; only another DROP can touch it (PostgreSQL's
# DATCONNLIMIT_INVALID_DB, catalog/pg_database.h).
INVALID = -2


def _lock_number(subject: object) -> int:
    # The prefix keeps two installations on one server apart.
    name = f"{settings.TENANT_DATABASE_PREFIX} {subject}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big", signed=True)


@contextmanager
def snapshot_of(server: DatabaseServer, database: str) -> Iterator[tuple[Raw, str]]:
    """Yield a connection that sees the database as it is now, and the name by which `pg_dump` sees the same."""
    with connection_to(server, database) as raw:
        begin_reading(raw)
        (name,) = raw.execute("SELECT pg_export_snapshot()").fetchone() or ("",)
        yield raw, name


def begin_reading(raw: Raw, snapshot: str = "") -> None:
    """Begin a transaction that may pause, and sees the database as it is now or as the transaction with this snapshot does."""
    raw.execute("SET idle_in_transaction_session_timeout = 0")
    raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    if snapshot:
        raw.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))


def displayed_size(raw: Raw) -> str:
    """Return the size of the connection's database for people."""
    ((size,),) = raw.execute("SELECT pg_size_pretty(pg_database_size(current_database()))").fetchall()
    return str(size)


def vacuum(raw: Raw) -> None:
    """Collect the statistics by which the server plans statements, and free space."""
    raw.execute("VACUUM (ANALYZE)")


def row_counts(raw: Raw) -> dict[str, int]:
    """Return the number of rows of every table of a tenant's database."""
    tables = raw.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1"
    ).fetchall()
    count = sql.SQL("SELECT count(*) FROM {}")
    return {name: raw.execute(count.format(sql.Identifier(name))).fetchall()[0][0] for (name,) in tables}


@contextmanager
def job_lock(server: DatabaseServer, subject: object, *, timeout: float = LOCK_SECONDS) -> Iterator[Raw]:
    """Open a maintenance connection that holds the job lock on `subject` (a tenant's id, or one of the jobs above).

    Raises JobRunning when another process still holds it after `timeout` seconds, InstallationFenced.
    """
    fences.require()
    number = _lock_number(subject)
    with servers.maintenance(server) as raw:
        raw.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(f"{max(1, round(timeout * 1000))}ms")))
        try:
            raw.execute("SELECT pg_advisory_lock(%s)", [number])
        except psycopg.errors.LockNotAvailable as problem:
            raise JobRunning from problem
        raw.execute("RESET lock_timeout")
        try:
            yield raw
        finally:
            # The server ends a connection shortly after it was closed; until then the next job would find it locked.
            with suppress(psycopg.Error):
                raw.execute("SELECT pg_advisory_unlock(%s)", [number])


def is_job_running(raw: Raw, subject: object) -> bool:
    """Return whether a job holds the lock on `subject`."""
    number = _lock_number(subject)
    row = raw.execute("SELECT pg_try_advisory_lock(%s)", [number]).fetchone()
    if row is not None and row[0]:
        raw.execute("SELECT pg_advisory_unlock(%s)", [number])
        return False
    return True


def names(raw: Raw) -> set[str]:
    """Return the databases of this installation on the server, including templates and invalid ones."""
    return {name for name, _ in _listed(raw)}


def invalid_names(raw: Raw) -> set[str]:
    """Return those that an interrupted DROP DATABASE left invalid."""
    return {name for name, limit in _listed(raw) if limit == INVALID}


def _listed(raw: Raw) -> list[tuple[str, int]]:
    # The database of the server's mark is none of them.
    return raw.execute(
        "SELECT datname, datconnlimit FROM pg_database WHERE starts_with(datname, %s) AND datname <> %s",
        [settings.TENANT_DATABASE_PREFIX, fences.database_of_marks()],
    ).fetchall()


def exists(raw: Raw, database: str) -> bool:
    """Return whether the server has the database. An invalid one counts as missing, as it cannot be read."""
    row = raw.execute("SELECT datconnlimit FROM pg_database WHERE datname = %s", [database]).fetchone()
    return row is not None and row[0] != INVALID


def drop(raw: Raw, database: str) -> None:
    """Drop a database if it exists, and its connections: poolers keep unused ones open."""
    POOL.close_idle(database)
    if exists(raw, database):
        # Only for a valid database: PostgreSQL cannot alter an invalid one.
        raw.execute(sql.SQL("ALTER DATABASE {} WITH IS_TEMPLATE false").format(sql.Identifier(database)))
        # A killed move may have left them; PostgreSQL does not drop a database that replicates.
        replication.release(raw, database)
    for attempt in range(DROP_TRIES):
        try:
            raw.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))
            return
        except InsufficientPrivilege:
            # Autovacuum is using it, which only a superuser can terminate.
            if attempt == DROP_TRIES - 1:
                raise
            time.sleep(0.5)


def create_empty(raw: Raw, database: str) -> None:
    """Create a database without anything in it."""
    raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(sql.Identifier(database)))


def copy_template(raw: Raw, server: DatabaseServer, database: str) -> None:
    """Copy the template of this schema version, unless the database exists."""
    template = template_name()
    if not exists(raw, template):
        ensure_template(server)
    if not exists(raw, database):
        # An interrupted DROP may have left an invalid database with this name.
        drop(raw, database)
        # file_copy forces a checkpoint, which delays all tenants. It is faster only on a server without fsync (tests).
        durable = raw.execute("SELECT current_setting('fsync') = 'on'").fetchone() == (True,)
        raw.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY {}").format(
                sql.Identifier(database), sql.Identifier(template), sql.SQL("wal_log" if durable else "file_copy")
            )
        )


def set_limits(raw: Raw, database: str) -> None:
    """Set the database's timeouts.

    They belong to the database and not to a connection, so they also apply behind a pooler, without a SET per connection.
    """
    limits = {
        "statement_timeout": f"{settings.TENANT_STATEMENT_TIMEOUT_MS}ms",
        "lock_timeout": f"{settings.TENANT_STATEMENT_TIMEOUT_MS}ms",
        "idle_in_transaction_session_timeout": "30s",
        "timezone": "UTC",
    }
    # One text is one transaction, and one flush to disk.
    raw.execute(
        sql.SQL("; ").join(
            sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                sql.Identifier(database), sql.Identifier(name), sql.Literal(value)
            )
            for name, value in limits.items()
        )
    )


def make_read_only(raw: Raw, database: str, *, spared: Sequence[int] = ()) -> None:
    """Make the database read-only, also for requests that are already running. `spared` sessions are read-only already.

    Raises CopyFailed if a session that can write does not terminate: its later commits would be missing in the copy.
    """
    if exists(raw, database):
        raw.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(sql.Identifier(database))
        )
        _await_starting_sessions(raw, database)
        _await_transactions(raw, database, spared)
        if not end_sessions(raw, database, spared=spared):
            raise CopyFailed("A session of the tenant does not terminate. Nothing was changed.")


def _await_starting_sessions(raw: Raw, database: str) -> None:
    # A session reads the database's settings before it is listed in pg_stat_activity. One that read them before the change
    # could write and not be terminated. Until it is listed, it holds this lock on the database (PostgreSQL's InitPostgres).
    deadline = time.monotonic() + SESSION_SECONDS
    starting = (
        "SELECT EXISTS (SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.objid"
        " WHERE locktype = 'object' AND classid = 'pg_database'::regclass AND mode = 'RowExclusiveLock' AND datname = %s)"
    )
    while raw.execute(starting, [database]).fetchone() == (True,):
        if time.monotonic() > deadline:
            raise CopyFailed("A session of the tenant does not finish starting. Nothing was changed.")
        time.sleep(0.01)


def _await_transactions(raw: Raw, database: str, spared: Sequence[int]) -> None:
    # Most last only milliseconds, and a request that loses its transaction gets 503. New requests do not begin any.
    deadline = time.monotonic() + _TRANSACTION_SECONDS
    running = (
        "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
        " AND state <> 'idle' AND pid <> pg_backend_pid() AND pid <> ALL (%s))"
    )
    while raw.execute(running, [database, list(spared)]).fetchone() == (True,) and time.monotonic() < deadline:
        time.sleep(0.005)


def read_only_names(raw: Raw) -> set[str]:
    """Return the databases on the server that `make_read_only` made read-only."""
    rows = raw.execute(
        "SELECT datname FROM pg_db_role_setting JOIN pg_database ON pg_database.oid = setdatabase"
        " WHERE setrole = 0 AND 'default_transaction_read_only=on' = ANY (setconfig)"
    )
    return {name for (name,) in rows}


def make_writable(raw: Raw, database: str) -> None:
    """Undo `make_read_only`."""
    if exists(raw, database):
        raw.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(sql.Identifier(database)))
        end_sessions(raw, database)


def end_sessions(raw: Raw, database: str, *, spared: Sequence[int] = ()) -> bool:
    """Terminate all sessions but `spared` processes and walsenders; return whether all ended.

    A database's settings apply to new sessions only. A walsender writes nothing, and the move that it serves would have to
    wait until its subscription connects again.
    """
    terminations = raw.execute(
        # Sessions without a role are PostgreSQL's own; only superusers can terminate them.
        "SELECT pid, backend_start, pg_terminate_backend(pid, %s) FROM pg_stat_activity"
        " WHERE datname = %s AND usesysid IS NOT NULL AND backend_type IS DISTINCT FROM 'walsender'"
        " AND pid <> ALL (%s)",
        [SESSION_SECONDS * 1000, database, list(spared)],
    ).fetchall()
    stayed = [(pid, since) for pid, since, ended in terminations if not ended]
    # A session that ended by itself is reported like one that did not terminate.
    present = raw.execute("SELECT pid, backend_start FROM pg_stat_activity WHERE datname = %s", [database]).fetchall()
    return not set(stayed) & set(present)


def template_name() -> str:
    """Return the name of the template database of this schema version."""
    return f"{template_prefix()}{schema_version().replace('-', '_')}"


def template_prefix() -> str:
    """Return the common prefix of all template databases."""
    return f"{settings.TENANT_DATABASE_PREFIX}template_"


def ensure_template(server: DatabaseServer) -> str:
    """Create the server's template database of this schema version unless it exists; return its name.

    It is migrated under another name and renamed at the end, so an unfinished one is never copied. It allows no connections,
    because PostgreSQL does not copy a database that has any.
    """
    name = template_name()
    with servers.maintenance(server) as raw:
        if exists(raw, name):
            return name
    # A second caller waits for the template of the first.
    with job_lock(server, TEMPLATE_JOB, timeout=120) as raw:
        if exists(raw, name):
            return name
        making = f"{name}_making"
        drop(raw, making)
        # Only an invalid one can exist under this name.
        drop(raw, name)
        create_empty(raw, making)
        upgrade(DatabaseTarget.for_maintenance(server, making))
        marks.prepare_template(server, making)
        raw.execute(
            sql.SQL("ALTER DATABASE {} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false").format(sql.Identifier(making))
        )
        # Last: the name marks it as complete.
        raw.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(making), sql.Identifier(name)))
    return name

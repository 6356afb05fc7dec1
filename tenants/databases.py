"""Databases on a server: look, copy, drop, and the lock that a job on a tenant holds. All of it on direct connections.

A job's lock is an advisory lock of the connection that does the job's work (PostgreSQL documentation 13.3.5). Whatever
kills the process, the server frees the lock once it has ended what that connection was doing, so the next run neither
waits for a dead process nor meets one that is still copying.
"""

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from django.conf import settings
from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from tenants import servers
from tenants.backend.base import POOL
from tenants.errors import CopyFailed, JobRunning
from tenants.models import DatabaseServer
from tenants.schema import schema_version, upgrade
from tenants.target import DatabaseTarget

Raw = psycopg.Connection[Any]

TEMPLATE_JOB = "template"
WARM_POOL_JOB = "warm pool"
# A killed process's connection takes a moment to end on the server.
PATIENCE_SECONDS = 2.0
DROP_TRIES = 10
# How long a session is waited for that is told to end.
SESSION_SECONDS = 5
# The connection limit of a database whose DROP was interrupted; only another DROP can touch it (PostgreSQL's
# DATCONNLIMIT_INVALID_DB, catalog/pg_database.h).
INVALID = -2


def _lock_number(subject: object) -> int:
    # The prefix keeps two installations on one server apart.
    name = f"{settings.TENANT_DATABASE_PREFIX} {subject}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big", signed=True)


@contextmanager
def maintenance_connection(server: DatabaseServer) -> Iterator[Raw]:
    """A direct connection in autocommit to the server's maintenance database, closed at the end."""
    with servers.maintenance(server) as raw:
        yield raw


@contextmanager
def connection_to(server: DatabaseServer, database: str) -> Iterator[Raw]:
    """A direct connection in autocommit to one database, closed at the end."""
    params = servers.parameters(server.pk, server.revision, direct=True)
    with servers.connect_for_maintenance(params | {"dbname": database}) as raw:
        raw.execute("SET statement_timeout = 0")
        yield raw


@contextmanager
def job_lock(server: DatabaseServer, subject: object, *, patience: float = PATIENCE_SECONDS) -> Iterator[Raw]:
    """The same, with the job's lock on `subject` (a tenant's id, or one of the jobs above) held meanwhile.

    Raises JobRunning when another process still holds it after `patience` seconds.
    """
    number = _lock_number(subject)
    with maintenance_connection(server) as raw:
        raw.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(f"{max(1, round(patience * 1000))}ms")))
        try:
            raw.execute("SELECT pg_advisory_lock(%s)", [number])
        except psycopg.errors.LockNotAvailable as held:
            raise JobRunning from held
        raw.execute("RESET lock_timeout")
        try:
            yield raw
        finally:
            # The server ends a connection a moment after it was closed: the next job would find this one at work still.
            with suppress(psycopg.Error):
                raw.execute("SELECT pg_advisory_unlock(%s)", [number])


def is_job_running(raw: Raw, subject: object) -> bool:
    """Whether a job holds the lock on `subject` at this moment."""
    number = _lock_number(subject)
    found = raw.execute("SELECT pg_try_advisory_lock(%s)", [number]).fetchone()
    if found is not None and found[0]:
        raw.execute("SELECT pg_advisory_unlock(%s)", [number])
        return False
    return True


def names(raw: Raw) -> set[str]:
    """The databases of this installation on the server, templates and invalid ones included."""
    return {name for name, _ in _listed(raw)}


def invalid_names(raw: Raw) -> set[str]:
    """Those of them that an interrupted DROP DATABASE has left invalid."""
    return {name for name, limit in _listed(raw) if limit == INVALID}


def _listed(raw: Raw) -> list[tuple[str, int]]:
    return raw.execute(
        "SELECT datname, datconnlimit FROM pg_database WHERE starts_with(datname, %s)",
        [settings.TENANT_DATABASE_PREFIX],
    ).fetchall()


def exists(raw: Raw, database: str) -> bool:
    """Whether the server has the database. An invalid one counts as missing: nothing can be read from it."""
    found = raw.execute("SELECT datconnlimit FROM pg_database WHERE datname = %s", [database]).fetchone()
    return found is not None and found[0] != INVALID


def drop(raw: Raw, database: str) -> None:
    """Drop a database, if it is there, with whoever is connected: poolers keep connections that nobody uses."""
    POOL.close_idle(database)
    if exists(raw, database):
        # PostgreSQL rejects to alter an invalid database; that one is no template any more.
        raw.execute(sql.SQL("ALTER DATABASE {} WITH IS_TEMPLATE false").format(sql.Identifier(database)))
    for attempt in range(DROP_TRIES):
        try:
            raw.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))
            return
        except InsufficientPrivilege:
            # Autovacuum is in it at the moment, with the server's own role: who is no superuser may not end that.
            if attempt == DROP_TRIES - 1:
                raise
            time.sleep(0.5)


def copy_template(raw: Raw, server: DatabaseServer, database: str) -> None:
    """Make the database from the template of this schema version, unless it is there."""
    template = template_name()
    if not exists(raw, template):
        ensure_template(server)
    if not exists(raw, database):
        # What an interrupted DROP has left under this name.
        drop(raw, database)
        # Copying files makes the server write out everything it holds, which stops all tenants for a moment; only a
        # throw-away server, which never waits for its disk, does it faster than by way of the log.
        safe = raw.execute("SELECT current_setting('fsync') = 'on'").fetchone() == (True,)
        raw.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY {}").format(
                sql.Identifier(database), sql.Identifier(template), sql.SQL("wal_log" if safe else "file_copy")
            )
        )


def set_limits(raw: Raw, database: str) -> None:
    """Give the database its time limits.

    They are the database's and not a connection's: they hold behind a pooler, and nothing is SET per connection.
    """
    limits = {
        "statement_timeout": f"{settings.TENANT_STATEMENT_TIMEOUT_MS}ms",
        "lock_timeout": f"{settings.TENANT_STATEMENT_TIMEOUT_MS}ms",
        "idle_in_transaction_session_timeout": "30s",
        "timezone": "UTC",
    }
    # Sent as one text they are one transaction, and wait for the disk once.
    raw.execute(
        sql.SQL("; ").join(
            sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                sql.Identifier(database), sql.Identifier(name), sql.Literal(value)
            )
            for name, value in limits.items()
        )
    )


def make_read_only(raw: Raw, database: str) -> None:
    """Let nothing be written into the database any more, not even by a request that has just been let in.

    Raises CopyFailed when a session that may write does not end: what it commits later would be in no copy.
    """
    if exists(raw, database):
        raw.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(sql.Identifier(database))
        )
        _await_those_who_come_in(raw, database)
        if not end_sessions(raw, database):
            raise CopyFailed("A session of the tenant does not end: everything is as it was.")


def _await_those_who_come_in(raw: Raw, database: str) -> None:
    # A session reads the database's settings before it is listed among the sessions. Whoever read them a moment ago may
    # write and could not be ended; from before the reading until it is listed it holds this lock on the database
    # (PostgreSQL's InitPostgres).
    deadline = time.monotonic() + SESSION_SECONDS
    coming_in = (
        "SELECT EXISTS (SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.objid"
        " WHERE locktype = 'object' AND classid = 'pg_database'::regclass AND mode = 'RowExclusiveLock' AND datname = %s)"
    )
    while raw.execute(coming_in, [database]).fetchone() == (True,):
        if time.monotonic() > deadline:
            raise CopyFailed("A session of the tenant is neither in nor out: everything is as it was.")
        time.sleep(0.01)


def read_only_names(raw: Raw) -> set[str]:
    """The databases on the server that nothing can be written into, by `hold_still`."""
    found = raw.execute(
        "SELECT datname FROM pg_db_role_setting JOIN pg_database ON pg_database.oid = setdatabase"
        " WHERE setrole = 0 AND 'default_transaction_read_only=on' = ANY (setconfig)"
    )
    return {name for (name,) in found}


def make_writable(raw: Raw, database: str) -> None:
    """Let it be written into again."""
    if exists(raw, database):
        raw.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(sql.Identifier(database)))
        end_sessions(raw, database)


def end_sessions(raw: Raw, database: str) -> bool:
    """End whatever is connected; settings of the database count for new sessions only. Tells whether all have ended."""
    asked = raw.execute(
        # Without a role it is PostgreSQL's own work, which is ended by nobody but superusers.
        "SELECT pid, backend_start, pg_terminate_backend(pid, %s) FROM pg_stat_activity"
        " WHERE datname = %s AND usesysid IS NOT NULL",
        [SESSION_SECONDS * 1000, database],
    ).fetchall()
    stayed = [(pid, since) for pid, since, ended in asked if not ended]
    # Who was gone before it could be ended is told alike.
    there = raw.execute("SELECT pid, backend_start FROM pg_stat_activity WHERE datname = %s", [database]).fetchall()
    return not set(stayed) & set(there)


def template_name() -> str:
    """The template database of this code's schema version."""
    return f"{template_prefix()}{schema_version().replace('-', '_')}"


def template_prefix() -> str:
    """What the names of all template databases begin with."""
    return f"{settings.TENANT_DATABASE_PREFIX}template_"


def ensure_template(server: DatabaseServer) -> str:
    """Make the server's template database of this schema version unless it is there; gives its name.

    It is migrated under another name and renamed when it is whole, so a half-made one is never copied. Nobody may
    connect to it, so copying is never rejected because somebody is in it.
    """
    name = template_name()
    with maintenance_connection(server) as raw:
        if exists(raw, name):
            return name
    # Whoever comes second waits for the first one's template instead of rejecting its caller.
    with job_lock(server, TEMPLATE_JOB, patience=120) as raw:
        if exists(raw, name):
            return name
        making = f"{name}_making"
        drop(raw, making)
        # Only an invalid one is left under this name by now.
        drop(raw, name)
        raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(sql.Identifier(making)))
        upgrade(DatabaseTarget.for_maintenance(server, making))
        raw.execute(
            sql.SQL("ALTER DATABASE {} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false").format(sql.Identifier(making))
        )
        # Last, because the name is what says that it is whole.
        raw.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(making), sql.Identifier(name)))
    return name

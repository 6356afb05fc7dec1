"""Databases on a server: look, copy, drop, and the lock that a job on a tenant holds. All of it on direct connections.

A job's lock is an advisory lock of the connection that does the job's work (PostgreSQL documentation 13.3.5). Whatever
kills the process, the server frees the lock once it has ended what that connection was doing, so the next run neither
waits for a dead process nor meets one that is still copying.
"""

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.conf import settings
from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from tenants import servers
from tenants.backend.base import POOL
from tenants.context import Place
from tenants.errors import JobRunning
from tenants.models import DatabaseServer
from tenants.schema import schema_version, upgrade

Raw = psycopg.Connection[Any]

TEMPLATE_JOB = "template"
WARM_POOL_JOB = "warm pool"
# A killed process's connection takes a moment to end on the server.
PATIENCE_SECONDS = 2.0
DROP_TRIES = 10


def _lock_number(subject: object) -> int:
    # The prefix keeps two installations on one server apart.
    name = f"{settings.TENANT_DATABASE_PREFIX} {subject}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big", signed=True)


@contextmanager
def administering(server: DatabaseServer) -> Iterator[Raw]:
    """A direct connection in autocommit to the server's maintenance database, closed at the end."""
    with servers.maintenance(server) as raw:
        yield raw


@contextmanager
def inside(server: DatabaseServer, database: str) -> Iterator[Raw]:
    """A direct connection in autocommit to one database, closed at the end."""
    params = servers.parameters(server.pk, server.revision, direct=True)
    with servers.connect_for_maintenance(params | {"dbname": database}) as raw:
        raw.execute("SET statement_timeout = 0")
        yield raw


@contextmanager
def working_on(server: DatabaseServer, subject: object, *, patience: float = PATIENCE_SECONDS) -> Iterator[Raw]:
    """The same, with the job's lock on `subject` (a tenant's id, or one of the jobs above) held meanwhile.

    Refuses with JobRunning when another process still holds it after `patience` seconds.
    """
    with administering(server) as raw:
        raw.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(f"{max(1, round(patience * 1000))}ms")))
        try:
            raw.execute("SELECT pg_advisory_lock(%s)", [_lock_number(subject)])
        except psycopg.errors.LockNotAvailable as held:
            raise JobRunning from held
        raw.execute("RESET lock_timeout")
        yield raw


def is_worked_on(raw: Raw, subject: object) -> bool:
    """Whether a job holds the lock on `subject` at this moment."""
    number = _lock_number(subject)
    found = raw.execute("SELECT pg_try_advisory_lock(%s)", [number]).fetchone()
    if found is not None and found[0]:
        raw.execute("SELECT pg_advisory_unlock(%s)", [number])
        return False
    return True


def names(raw: Raw) -> set[str]:
    """The databases of this installation on the server, templates included."""
    found = raw.execute(
        "SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [settings.TENANT_DATABASE_PREFIX]
    )
    return {name for (name,) in found}


def exists(raw: Raw, database: str) -> bool:
    """Whether the server has the database."""
    return raw.execute("SELECT 1 FROM pg_database WHERE datname = %s", [database]).fetchone() is not None


def drop(raw: Raw, database: str) -> None:
    """Drop a database, if it is there, with whoever is connected: poolers keep connections that nobody uses."""
    POOL.close_idle(database)
    if exists(raw, database):
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


def hold_still(raw: Raw, database: str) -> None:
    """Let nothing be written into the database any more, not even by a request that has just been let in."""
    if exists(raw, database):
        raw.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(sql.Identifier(database))
        )
        end_sessions(raw, database)


def let_go(raw: Raw, database: str) -> None:
    """Let it be written into again."""
    if exists(raw, database):
        raw.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(sql.Identifier(database)))
        end_sessions(raw, database)


def end_sessions(raw: Raw, database: str) -> None:
    """End whatever is connected; settings of the database count for new sessions only."""
    raw.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [database])


def template_name() -> str:
    """The template database of this code's schema version."""
    return f"{template_prefix()}{schema_version().replace('-', '_')}"


def template_prefix() -> str:
    """What the names of all template databases begin with."""
    return f"{settings.TENANT_DATABASE_PREFIX}template_"


def ensure_template(server: DatabaseServer) -> str:
    """Make the server's template database of this schema version unless it is there; gives its name.

    It is migrated under another name and renamed when it is whole, so a half-made one is never copied. Nobody may
    connect to it, so copying is never refused because somebody is in it.
    """
    name = template_name()
    with administering(server) as raw:
        if exists(raw, name):
            return name
    # Whoever comes second waits for the first one's template instead of refusing its caller.
    with working_on(server, TEMPLATE_JOB, patience=120) as raw:
        if exists(raw, name):
            return name
        making = f"{name}_making"
        drop(raw, making)
        raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(sql.Identifier(making)))
        upgrade(Place(server.pk, server.revision, making, direct=True))
        raw.execute(
            sql.SQL("ALTER DATABASE {} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false").format(sql.Identifier(making))
        )
        # Last, because the name is what says that it is whole.
        raw.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(making), sql.Identifier(name)))
    return name

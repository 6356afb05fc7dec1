"""The mark in a tenant's database: which installation and which tenant it belongs to.

It is checked when a connection is opened, and not per request. A database that was upgraded to this release and not migrated
yet has no table for it, and is used without one; one with the table must have the mark.
"""

import threading
import time
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import orjson
import psycopg
import structlog
from django.db import connections
from prometheus_client import Counter
from psycopg import sql

from identity_platform.audit.writer import record_for_platform
from tenants.database_servers import fences, servers
from tenants.database_servers.queries import connection_to
from tenants.errors import ForeignDatabase, InstallationUnknown
from tenants.models import DatabaseServer, TenantRecord

log = structlog.get_logger("identity.tenants")

REJECTED = Counter("identity_tenant_databases_rejected", "Connections to a database with another tenant's mark.")
_TABLE: Final = TenantRecord._meta.db_table
_READ: Final = f"SELECT installation, epoch, tenant_id FROM {_TABLE}"
_AUDITED_EVERY_SECONDS: Final = 60.0
_audited: dict[UUID, float] = {}


class SpareUnfit(Exception):
    """A spare database is not taken. The text says why, for operators."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Whose database it is. `tenant_id` is None in a spare database."""

    installation: UUID
    epoch: int
    tenant_id: UUID | None

    @property
    def owner(self) -> str:
        """Whose it is, for operators."""
        return f"tenant {self.tenant_id} of installation {self.installation}"


# --- when a connection is opened ---------------------------------------------------------------------------------------


def check(raw: "psycopg.Connection[object]", server_id: int, database: str, tenant_id: UUID) -> None:
    """Raise ForeignDatabase unless the database is the tenant's, InstallationFenced if a newer installation has it.

    Raises InstallationUnknown if the global database does not say which installation this is: a fenced copy could be one.
    Raises psycopg.OperationalError while the mark of the server, which was away before, cannot be read.
    """
    fences.require_compared(server_id)
    installation, epoch = fences.own_mark()
    try:
        row = raw.execute(_READ).fetchone()
    except psycopg.errors.UndefinedTable:
        # migrate_tenants has not come to it.
        return
    mark = Mark(*row) if isinstance(row, tuple) else None
    if not installation.int or (mark is not None and mark.epoch > epoch):
        # The global database did not respond in time when this process first looked; or the installation was adopted since
        # by another process of it, or by another copy.
        fences.look(again=True)
        installation, epoch = fences.own_mark()
    if not installation.int:
        raise InstallationUnknown
    if mark is not None and mark.tenant_id == tenant_id and mark.installation == installation and mark.epoch <= epoch:
        return
    REJECTED.inc()
    log.error(
        "tenant_database_rejected",
        tenant=str(tenant_id),
        server=servers.name_of(server_id),
        database=database,
        mark=mark.owner if mark else "none",
        next="run check_tenants",
    )
    _audit(tenant_id, database)
    raise ForeignDatabase


def _audit(tenant_id: UUID, database: str) -> None:
    """Write one event per tenant and minute, in another thread: the caller's transaction may be rolled back."""
    moment = time.monotonic()
    if moment < _audited.get(tenant_id, 0.0):
        return
    _audited[tenant_id] = moment + _AUDITED_EVERY_SECONDS

    def write() -> None:
        try:
            record_for_platform(
                "tenant.database_rejected",
                tenant_id=tenant_id,
                target=("tenant", tenant_id),
                details={"database": database},
            )
        finally:
            connections.close_all()

    writer = threading.Thread(target=write, name="rejected-database", daemon=True)
    writer.start()
    writer.join(2.0)


# --- reading and writing ---------------------------------------------------------------------------------------------


def read(server: DatabaseServer, database: str) -> Mark | None:
    """Return the mark of a database, None if it has none. Raises psycopg.Error."""
    with connection_to(server, database) as raw:
        return _read(raw)


def _read(raw: servers.Connection) -> Mark | None:
    if raw.execute("SELECT to_regclass(%s)", [_TABLE]).fetchone() == (None,):
        return None
    row = raw.execute(_READ).fetchone()
    return Mark(*row) if row else None


def number_of_users(server: DatabaseServer, database: str) -> int:
    """Return how many end users a database has; 0 without such a table. Raises psycopg.Error."""
    with connection_to(server, database) as raw:
        if raw.execute("SELECT to_regclass('userflow_enduser')").fetchone() == (None,):
            return 0
        ((number,),) = raw.execute("SELECT count(*) FROM userflow_enduser").fetchall()
        return int(number)


def owner_of_spare(server: DatabaseServer, database: str, installation: UUID) -> str:
    """Return why a spare may be a tenant's database, for operators; empty if it is no tenant's. Raises psycopg.Error.

    `installation` is whose spares these are.
    """
    mark = read(server, database)
    if mark is not None and mark.tenant_id is not None:
        return f"it belongs to {mark.owner}"
    if mark is not None and mark.installation != installation:
        return f"it belongs to installation {mark.installation}"
    if users := number_of_users(server, database):
        return f"it has {users} users"
    return ""


def _row_counts(raw: servers.Connection) -> dict[str, int]:
    tables = raw.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> %s"
        " ORDER BY 1",
        [_TABLE],
    ).fetchall()
    count = sql.SQL("SELECT {}::text, count(*) FROM {}")
    statement = sql.SQL(" UNION ALL ").join(
        count.format(sql.Literal(name), sql.Identifier("public", name)) for (name,) in tables
    )
    return dict(raw.execute(statement).fetchall())


def prepare_template(server: DatabaseServer, database: str) -> None:
    """Give a template the mark that its copies inherit: this installation, no tenant, and the rows that migrations made."""
    installation, epoch = fences.own_mark()
    with connection_to(server, database) as raw:
        raw.execute(
            f"INSERT INTO {_TABLE} (one, installation, epoch, template_rows) VALUES (true, %s, %s, %s)"
            " ON CONFLICT (one) DO NOTHING",
            [installation, epoch, orjson.dumps(_row_counts(raw)).decode()],
        )


def take(server: DatabaseServer, database: str, tenant_id: UUID) -> None:
    """Mark a copy of the template as the tenant's, in the transaction that proves it to be no tenant's and empty.

    Raises SpareUnfit. Can be repeated for the same tenant.
    """
    try:
        with connection_to(server, database) as raw, raw.transaction():
            _take(raw, tenant_id)
    except psycopg.OperationalError as problem:
        if fences.is_missing(problem, database):
            raise SpareUnfit("it does not exist") from problem
        raise


def _take(raw: servers.Connection, tenant_id: UUID) -> None:
    installation, epoch = fences.own_mark()
    if raw.execute("SELECT to_regclass(%s)", [_TABLE]).fetchone() == (None,):
        raise SpareUnfit("it has no mark")
    row = raw.execute(f"SELECT installation, epoch, tenant_id, template_rows FROM {_TABLE} FOR UPDATE").fetchone()
    if row is None:
        raise SpareUnfit("it has no mark")
    *columns, expected = row
    mark = Mark(*columns)
    if mark.installation != installation or mark.epoch > epoch:
        raise SpareUnfit(f"it belongs to installation {mark.installation}, epoch {mark.epoch}")
    if mark.tenant_id == tenant_id:
        return
    if mark.tenant_id is not None:
        raise SpareUnfit(f"it belongs to tenant {mark.tenant_id}")
    if differing := _differing(expected, _row_counts(raw)):
        raise SpareUnfit(f"it is not empty: {', '.join(differing[:5])}")
    raw.execute(f"UPDATE {_TABLE} SET tenant_id = %s, epoch = %s", [tenant_id, epoch])


def _differing(expected: dict[str, int], present: dict[str, int]) -> list[str]:
    return [name for name in sorted(expected.keys() | present.keys()) if expected.get(name) != present.get(name)]


def stamp(server: DatabaseServer, database: str, tenant_id: UUID) -> None:
    """Mark a database that this process has filled for the tenant, in place of the mark in the backup."""
    _write(server, database, tenant_id, "true")


def stamp_unmarked(server: DatabaseServer, database: str, tenant_id: UUID) -> Mark:
    """Mark the database of a tenant from a release without marks; return its mark, which is another's if it has one.

    This trusts the mapping: such a database says nothing about whose it is.
    """
    _write(server, database, tenant_id, "false")
    mark = read(server, database)
    assert mark is not None  # it was written
    return mark


def renew(server: DatabaseServer, database: str, tenant_id: UUID) -> None:
    """Write the present epoch into the mark of a tenant's database; leave a mark of another tenant or installation."""
    _write(
        server,
        database,
        tenant_id,
        f"{_TABLE}.tenant_id = excluded.tenant_id AND {_TABLE}.installation = excluded.installation",
    )


def _write(server: DatabaseServer, database: str, tenant_id: UUID, condition: str) -> None:
    installation, epoch = fences.own_mark()
    with connection_to(server, database) as raw:
        raw.execute(
            f"INSERT INTO {_TABLE} (one, installation, epoch, tenant_id) VALUES (true, %s, %s, %s) ON CONFLICT (one)"
            " DO UPDATE SET installation = excluded.installation, epoch = excluded.epoch, tenant_id = excluded.tenant_id"
            f" WHERE {condition}",
            [installation, epoch, tenant_id],
        )

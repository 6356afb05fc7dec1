"""Copy the changes of a tenant's database to another server while the tenant is in use: logical replication.

The publication, the replication slot and the subscription of a move have one name, which contains the tenant's id, so a
later run finds those of a killed one. A forgotten slot keeps WAL on the source until its disk is full: it is dropped on every
way out of a move, with the database it belongs to, and by `check_tenants --repair`.

The changes are applied as by a replica (`session_replication_role`): ordinary triggers do not fire, and the rows they wrote
on the source arrive as rows. ENABLE ALWAYS triggers fire. Schema changes are not replicated; the job lock keeps migrations
out.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import psycopg
from django.conf import settings
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tenants.database_servers import servers
from tenants.errors import CopyFailed
from tenants.models import DatabaseServer

_NAME: Final = "identity_move_"
# A slot begins when all transactions that were open on the server have ended.
SLOT_SECONDS = 60.0
# The target's connection to the source has no timeout of its own.
CONNECT_SECONDS = 10
_MOST_ERRORS = 3

# Ordinary tables, partitions included, without those that CREATE EXTENSION fills.
TABLES: Final = """
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind = 'r' AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
   AND NOT EXISTS (SELECT FROM pg_depend e WHERE e.classid = 'pg_class'::regclass AND e.objid = c.oid AND e.deptype = 'e')
"""
_UNFIT_TABLES: Final = {
    "without a primary key, by which a changed row is found": """
        AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate)""",
    "unlogged": "AND c.relpersistence <> 'p'",
    "owned by another role": "AND NOT pg_has_role(c.relowner, 'USAGE')",
}
_CREATE: Final = """
DO $$ BEGIN
  EXECUTE format('CREATE SUBSCRIPTION %I CONNECTION %L PUBLICATION %I WITH ({options})',
                 {name}, (SELECT text FROM pg_temp.reached_by), {name});
EXCEPTION WHEN OTHERS THEN
  RAISE EXCEPTION USING MESSAGE = SQLERRM, ERRCODE = SQLSTATE;
END $$
"""


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot of a move. `tenant_id` is in its name."""

    name: str
    tenant_id: UUID
    database: str


def name_for(tenant_id: UUID) -> str:
    """Return the name of the publication, slot and subscription of a tenant's move."""
    return f"{_NAME}{tenant_id.hex}"


def slots(raw: servers.Connection) -> list[Slot]:
    """Return the slots of moves from this server that belong to this installation."""
    rows = raw.execute(
        "SELECT slot_name, database FROM pg_replication_slots WHERE starts_with(slot_name, %s) AND starts_with(database, %s)",
        [_NAME, settings.TENANT_DATABASE_PREFIX],
    ).fetchall()
    return [Slot(name, UUID(name.removeprefix(_NAME)), database) for name, database in rows]


# --- whether it is possible ------------------------------------------------------------------------------------------


def obstacles(source: DatabaseServer, database: str, target: DatabaseServer) -> list[str]:
    """Return why this database cannot be replicated to that server, one sentence for each reason. Changes nothing."""
    with _connection(source, database) as raw:
        reasons = [*_obstacles_of_source(raw, source), *_obstacles_in_database(raw)]
    with servers.maintenance(target) as raw:
        reasons += _obstacles_of_target(raw, target)
        if not reasons:
            reasons += _unreachable(raw, target, source, database)
    return reasons


def _obstacles_of_source(raw: servers.Connection, source: DatabaseServer) -> Iterator[str]:
    level, replicates, free_slots, free_senders, creates = _row(
        raw,
        "SELECT current_setting('wal_level'), rolsuper OR rolreplication,"
        " current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots),"
        " current_setting('max_wal_senders')::int - (SELECT count(*) FROM pg_stat_replication),"
        " has_database_privilege(current_database(), 'CREATE') FROM pg_roles WHERE rolname = current_user",
    )
    if level != "logical":
        yield f"{source.name} has wal_level = {level}; set it to logical."
    if not replicates:
        yield f"The admin login of {source.name} may not replicate; ALTER ROLE … REPLICATION permits it."
    if free_slots < 1:
        yield f"{source.name} has no free replication slot; raise max_replication_slots."
    if free_senders < 1:
        yield f"{source.name} has no free walsender; raise max_wal_senders."
    if not creates:
        yield f"The admin login of {source.name} may not create a publication in the tenant's database."


def _obstacles_in_database(raw: servers.Connection) -> Iterator[str]:
    checks = [
        (f"Tables {reason}", f"SELECT c.oid::regclass::text {TABLES} {unfit}")
        for reason, unfit in _UNFIT_TABLES.items()
    ]
    checks.append(("Materialized views", "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'm'"))
    for what, query in checks:
        if names := [name for (name,) in raw.execute(f"{query} ORDER BY 1").fetchall()]:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            yield f"{what}: {', '.join(names[:3])}{more}."


def _obstacles_of_target(raw: servers.Connection, target: DatabaseServer) -> Iterator[str]:
    subscribes = "rolsuper"
    if raw.info.server_version >= 160_000:
        subscribes += " OR pg_has_role('pg_create_subscription', 'USAGE')"
    may, free_workers = _row(
        raw,
        f"SELECT {subscribes}, current_setting('max_logical_replication_workers')::int - (SELECT count(*)"
        " FROM pg_stat_activity WHERE backend_type LIKE 'logical replication%worker')"
        " FROM pg_roles WHERE rolname = current_user",
    )
    if not may:
        yield (
            f"The admin login of {target.name} may not create subscriptions; from PostgreSQL 16 on GRANT"
            " pg_create_subscription permits it, before that only a superuser may."
        )
    if free_workers < 1:
        yield f"{target.name} has no free replication worker; raise max_logical_replication_workers."


def _unreachable(raw: servers.Connection, target: DatabaseServer, source: DatabaseServer, database: str) -> list[str]:
    """Try a subscription that is rolled back. The database's random name tells the source from a third server."""
    if not _is_superuser(raw):
        # Found out when the copy subscribes: the server warns of the missing publication, with the statement, in its log.
        return []
    try:
        with raw.transaction(force_rollback=True):
            _create_subscription(raw, "identity_move_probe", source, database, "slot_name = NONE, enabled = false")
    except psycopg.Error as problem:
        return [f"{target.name} cannot connect to {source.name}: {_first_line(problem)}."]
    return []


# --- the source ------------------------------------------------------------------------------------------------------


@contextmanager
def published(source: DatabaseServer, database: str, tenant_id: UUID) -> Iterator[str]:
    """Publish all tables and keep their changes from now on in a slot; yield the name of the snapshot of that moment.

    The snapshot is for `pg_dump --snapshot` and can be used until the block ends. Raises CopyFailed.
    """
    name = name_for(tenant_id)
    with _connection(source, database) as raw:
        tables = raw.execute(f"SELECT n.nspname, c.relname {TABLES} ORDER BY 1, 2").fetchall()
        raw.execute(
            # Before the slot: changes are decoded with the publication as it was at that time.
            sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(
                sql.Identifier(name), sql.SQL(", ").join(sql.Identifier(*table) for table in tables)
            )
        )
    # A database's timeouts hold for walsenders too, and the one that exports the snapshot is idle meanwhile.
    parameters = _parameters(source, database)
    options = f"{parameters.get('options', '')} -c idle_in_transaction_session_timeout=0 -c statement_timeout=0"
    walsender = parameters | {"replication": "database", "options": options.strip()}
    with servers.connect_for_maintenance(walsender) as raw:
        timer = threading.Timer(SLOT_SECONDS, raw.cancel)
        timer.start()
        try:
            created = raw.execute(
                sql.SQL("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput EXPORT_SNAPSHOT").format(sql.Identifier(name))
            ).fetchone()
        except psycopg.errors.QueryCanceled as late:
            raise CopyFailed(
                f"A transaction on {source.name} has been open for more than {SLOT_SECONDS:.0f} s, also that of another"
                " database. A move begins when the transactions before it have ended."
            ) from late
        finally:
            timer.cancel()
        assert created is not None
        yield str(created[2])


def end_of_wal(raw: servers.Connection) -> str:
    """Return a position in the WAL after everything that has been committed on this server, which is then on disk."""
    raw.execute("SET synchronous_commit = on")
    (position,) = _row(raw, "SELECT pg_logical_emit_message(true, 'identity_move', '')")
    return str(position)


# --- the target ------------------------------------------------------------------------------------------------------


def subscribe(target: DatabaseServer, copy: str, *, source: DatabaseServer, database: str, tenant_id: UUID) -> None:
    """Apply the source's changes to the copy, from the slot's snapshot on. Raises CopyFailed."""
    name = name_for(tenant_id)
    with _connection(source, database) as raw:
        (published_tables,) = _row(raw, "SELECT count(*) FROM pg_publication_tables WHERE pubname = %s", name)
    with _connection(target, copy) as raw:
        try:
            with raw.transaction():
                _create_subscription(
                    raw,
                    name,
                    source,
                    database,
                    f"slot_name = {name}, enabled = true, streaming = off",
                )
                (seen,) = _row(
                    raw,
                    "SELECT count(*) FROM pg_subscription_rel JOIN pg_subscription ON oid = srsubid WHERE subname = %s",
                    name,
                )
                if seen != published_tables:
                    raise CopyFailed(f"Under the address of {source.name} {target.name} reaches another server.")
        except psycopg.Error as problem:
            raise CopyFailed(f"{target.name} cannot subscribe to {source.name}: {_first_line(problem)}.") from problem


def _create_subscription(
    raw: servers.Connection, name: str, source: DatabaseServer, database: str, options: str
) -> None:
    """Create it in the caller's transaction, without the source's password in a statement.

    Statements appear in logs and pg_stat_activity. The data of a COPY does not, and an error inside the block is not logged
    with the statement that it executes. A warning is, unless the login may shorten the log.
    """
    parameters = _parameters(source, database)
    if _is_superuser(raw):
        raw.execute("SET LOCAL log_error_verbosity = terse")
    raw.execute(sql.SQL("SET LOCAL statement_timeout = {}").format(sql.Literal(f"{CONNECT_SECONDS}s")))
    raw.execute("CREATE TEMPORARY TABLE reached_by (text text) ON COMMIT DROP")
    with raw.cursor().copy("COPY pg_temp.reached_by FROM STDIN") as copy:
        copy.write_row([make_conninfo(**parameters)])
    options = f"create_slot = false, copy_data = false, {options}"
    raw.execute(_CREATE.format(options=options, name=sql.Literal(name).as_string()))


def applied(raw: servers.Connection, tenant_id: UUID) -> str | None:
    """Return the position in the source's WAL up to which the copy has all changes; None before the first one.

    `raw` is a connection to the target. Raises CopyFailed if a change could not be applied.
    """
    position, errors = _row(
        raw,
        # Received is applied: the worker reads a message when it has applied the one before.
        "SELECT (SELECT max(received_lsn)::text FROM pg_stat_subscription a WHERE a.subid = s.oid),"
        " (SELECT apply_error_count FROM pg_stat_subscription_stats e WHERE e.subid = s.oid)"
        " FROM pg_subscription s WHERE subname = %s",
        name_for(tenant_id),
    )
    # A lost connection is one error; a row that does not fit is one at every attempt, every five seconds.
    if (errors or 0) >= _MOST_ERRORS:
        raise CopyFailed(
            "Changes could not be applied to the copy; the log of the target server has the reason. Nothing was changed."
        )
    return None if position is None else str(position)


def is_past(raw: servers.Connection, position: str | None, target: str) -> bool:
    """Return whether a position in the WAL is not before another."""
    return position is not None and _row(raw, "SELECT %s::pg_lsn >= %s::pg_lsn", position, target) == (True,)


def bytes_behind(raw: servers.Connection, position: str | None, tenant_id: UUID) -> int | None:
    """Return how much WAL of the source the copy has yet to get; None if that is unknown. `raw` leads to the source.

    Raises CopyFailed if the server no longer keeps the WAL.
    """
    status, behind = _row(
        raw,
        "SELECT wal_status, greatest(0, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s::pg_lsn))::bigint"
        " FROM pg_replication_slots WHERE slot_name = %s",
        position,
        name_for(tenant_id),
    )
    if status == "lost":
        raise CopyFailed("The server no longer keeps the WAL since the begin of the move: see max_slot_wal_keep_size.")
    return None if behind is None else int(behind)


# --- clearing up -----------------------------------------------------------------------------------------------------


def release(raw: servers.Connection, database: str) -> None:
    """Drop the slots and subscriptions of moves of a database, so that it can be dropped. `raw` leads to its server."""
    unsubscribe(raw, database)
    drop_slots(raw, database)


def unsubscribe(raw: servers.Connection, database: str) -> None:
    """Drop the subscriptions of moves in a database, without reaching the source. `raw` leads to its server."""
    subscriptions = raw.execute(
        "SELECT subname FROM pg_subscription JOIN pg_database d ON d.oid = subdbid"
        " WHERE datname = %s AND starts_with(subname, %s)",
        [database, _NAME],
    ).fetchall()
    if not subscriptions:
        return
    with _sibling(raw, database) as inside:
        for (name,) in subscriptions:
            subscription = sql.Identifier(name)
            # Its slot is dropped on the source: from here that would fail where the source is unreachable.
            for change in ("DISABLE", "SET (slot_name = NONE)"):
                inside.execute(sql.SQL("ALTER SUBSCRIPTION {} {}").format(subscription, sql.SQL(change)))
            inside.execute(sql.SQL("DROP SUBSCRIPTION {}").format(subscription))
        # The row had the source's password. Without the privilege this is a warning.
        inside.execute("VACUUM pg_subscription")


def drop_slots(raw: servers.Connection, database: str) -> None:
    """Drop the slots of moves of a database, in use or not. `raw` leads to its server."""
    mine = "FROM pg_replication_slots WHERE database = %s AND starts_with(slot_name, %s)"
    for (name,) in raw.execute(f"SELECT slot_name {mine}", [database, _NAME]).fetchall():
        for attempt in range(5):
            raw.execute(f"SELECT pg_terminate_backend(active_pid, 2000) {mine} AND active", [database, _NAME])
            try:
                raw.execute(
                    f"SELECT pg_drop_replication_slot(slot_name) {mine} AND slot_name = %s", [database, _NAME, name]
                )
                break
            except psycopg.errors.ObjectInUse:
                # The subscription has connected again.
                if attempt == 4:
                    raise


def unpublish(raw: servers.Connection, database: str) -> None:
    """Drop the slots and publications of moves of a database that stays. `raw` leads to its server."""
    drop_slots(raw, database)
    with _sibling(raw, database) as inside:
        names = "SELECT pubname FROM pg_publication WHERE starts_with(pubname, %s)"
        for (name,) in inside.execute(names, [_NAME]).fetchall():
            inside.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(name)))


# --- connections -----------------------------------------------------------------------------------------------------


def _parameters(server: DatabaseServer, database: str) -> servers.Parameters:
    parameters = servers.parameters(server.pk, server.revision, direct=True) | {"dbname": database}
    for name in ("prepare_threshold", "application_name", "cursor_factory", "context"):
        parameters.pop(name, None)
    return parameters


@contextmanager
def _connection(server: DatabaseServer, database: str) -> Iterator[servers.Connection]:
    with servers.connect_for_maintenance(_parameters(server, database)) as raw:
        raw.execute("SET statement_timeout = 0")
        yield raw


@contextmanager
def _sibling(raw: servers.Connection, database: str) -> Iterator[servers.Connection]:
    """Open a connection to another database of the same server, which may write in a read-only database."""
    parameters = raw.info.get_parameters() | {"dbname": database, "password": raw.info.password}
    with servers.connect_for_maintenance(parameters) as inside:
        inside.execute("SET default_transaction_read_only = off")
        yield inside


def _is_superuser(raw: servers.Connection) -> bool:
    return raw.info.parameter_status("is_superuser") == "on"


def _row(raw: servers.Connection, query: str, *values: object) -> tuple[Any, ...]:
    row = raw.execute(query, values or None).fetchone()
    if row is None:
        raise CopyFailed("The replication of the move was removed meanwhile. Nothing was changed.")
    return row


def _first_line(problem: psycopg.Error) -> str:
    said = problem.diag.message_primary or str(problem) or type(problem).__name__
    return said.splitlines()[0][:300].rstrip(".")

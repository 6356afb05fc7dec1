"""Keep an installation whose global database was restored or copied from serving, writing and delivering.

Every database server carries a mark, in a small database of its own: the installation, its epoch, and two counters that the
global database raises first. So the global database is never behind a mark, unless it was restored to an earlier moment. The
global database itself stores which physical database it is (cluster, database, table), so a copy made from a dump is
recognized as one. No clock is compared.

A fenced process responds with 503, and starts no job: `require` is called where a connection to a tenant's database is opened
and where a job takes its lock. `tenants.jobs.adoption` has the two ways out.
"""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

import psycopg
import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError, ProgrammingError, connection, transaction
from psycopg import sql

from identity_platform import shared_facts
from identity_platform.api.errors import ApiError
from identity_platform.crypto import SealBroken
from identity_platform.installation import VERSION
from identity_platform.postgresql.statements import fetch_row
from identity_platform.postgresql.transactions import advisory_lock
from tenants.database_servers import servers
from tenants.errors import InstallationFenced
from tenants.models import DatabaseServer, Installation

log = structlog.get_logger("identity.tenants")

# An asynchronous failover can lose the last seconds of the global database, and a check of the servers with them.
TOLERATED_BEATS: Final = 5
# How often a fenced process looks whether it was adopted or detached.
_LOOK_AGAIN_SECONDS: Final = 2.0
_AT_ONCE: Final = 8
_ESTABLISH_LOCK: Final = 7_215_015
MARK_TABLE: Final = """
CREATE TABLE IF NOT EXISTS server_mark (
  one boolean PRIMARY KEY DEFAULT true CHECK (one), id uuid NOT NULL DEFAULT gen_random_uuid(),
  installation uuid NOT NULL, epoch bigint NOT NULL, revision bigint NOT NULL, beats bigint NOT NULL)
"""
_SET: Final = """
INSERT INTO server_mark (installation, epoch, revision, beats) VALUES (%s, %s, %s, %s)
ON CONFLICT (one) DO UPDATE SET installation = excluded.installation, epoch = greatest(server_mark.epoch, excluded.epoch),
  revision = greatest(server_mark.revision, excluded.revision), beats = greatest(server_mark.beats, excluded.beats)
"""


@dataclass(frozen=True, slots=True)
class ServerMark:
    """What a server says about the installation that it belongs to."""

    # Of the server itself: several rows of servers may lead to one, by different logins.
    id: UUID
    installation: UUID
    epoch: int
    revision: int
    beats: int


@dataclass(slots=True)
class _Process:
    """What this process knows. Replaced as a whole, so that threads need no lock to read it. Only `revisions` rises."""

    installation: UUID | None = None
    epoch: int = 0
    revisions: int = 0
    reasons: tuple[str, ...] = ()
    # Servers (ids) whose marks were compared, and those that did not respond.
    compared: frozenset[int] = frozenset()
    missed: frozenset[int] = frozenset()
    looked_at: float = 0.0


_process = _Process()
# Installation and epoch that this process has proven. They count while the global database is away: then no other one serves.
_proven: tuple[UUID, int] | None = None
_away_until = 0.0
# Whether the database behind a new connection is another one, or an earlier state, than the one that was proven.
_is_suspect = False
_looking = threading.Lock()


def database_of_marks() -> str:
    """Return the name of the database that holds a server's mark."""
    return f"{settings.TENANT_DATABASE_PREFIX}fence"


# --- asking ----------------------------------------------------------------------------------------------------------


def require() -> None:
    """Raise InstallationFenced unless this installation may use its database servers. Costs nothing once it was allowed."""
    if _process.installation is not None or (_proven is not None and time.monotonic() < _away_until):
        return
    if reasons := look():
        raise InstallationFenced(" ".join(reasons))


def require_compared(server_id: int) -> None:
    """Raise InstallationFenced unless the installation may use this server, which may have been away when others were compared.

    Raises psycopg.OperationalError while its mark cannot be read. Costs nothing once it was compared.
    """
    require()
    if server_id in _process.compared:
        return
    if fence_reasons := look(uncompared=server_id):
        raise InstallationFenced(" ".join(fence_reasons))
    # Null only while the global database has no table of installations yet.
    if _process.installation is not None and server_id not in _process.compared:
        raise psycopg.OperationalError("The mark of the server cannot be read, so its databases are not used.")


def reasons() -> tuple[str, ...]:
    """Return why the installation is fenced; empty if it is not. Looks again every few seconds while it is."""
    return () if _process.installation is not None else look()


def serves() -> bool:
    """Return whether this process serves end users: also while the global database is away, if it was proven before."""
    return not reasons() and (_process.installation is not None or _proven is not None)


def own_mark() -> tuple[UUID, int]:
    """Return the installation and the epoch that this process has proven. Raises InstallationFenced."""
    require()
    known = _process
    if known.installation is None and _proven is not None:
        return _proven
    # Null only while the global database has no table of installations yet, or is away and has not been read before.
    return known.installation or UUID(int=0), known.epoch


def stored_id() -> UUID:
    """Return which installation the global database says it is, also while it is fenced. For reports only."""
    return Installation.objects.values_list("pk", flat=True).first() or UUID(int=0)


def look(*, again: bool = False, uncompared: int | None = None) -> tuple[str, ...]:
    """Compare the global database with the marks of the servers; return why the installation is fenced.

    `again` also in a process that was allowed before: the global database may have been restored since. `uncompared` (a
    server's id) also if that server was not compared.
    """
    global _process, _proven, _away_until, _is_suspect
    with _looking:
        if time.monotonic() < _away_until:
            return _process.reasons
        if not again:
            if _process.installation is not None and not _is_due(uncompared):
                return ()
            if _process.reasons and time.monotonic() < _process.looked_at + _LOOK_AGAIN_SECONDS:
                return _process.reasons
        try:
            installation, fence_reasons, compared, missed = _examined()
        except ProgrammingError:
            # `prepare` has not run with this release. What needs the fence needs its tables too.
            return ()
        except (OperationalError, InterfaceError):
            # What this process has proven, or that it is fenced, still counts. A later call looks again.
            connection.close_if_unusable_or_obsolete()
            _away_until = time.monotonic() + _LOOK_AGAIN_SECONDS
            if _proven is None and not (_process.reasons or _is_suspect):
                _proven = _shared_proof()
            return _process.reasons
        if fence_reasons and fence_reasons != _process.reasons:
            log.error(
                "installation_fenced", reasons=list(fence_reasons), next="run adopt_installation or detach_installation"
            )
        _process = (
            _Process(reasons=fence_reasons, looked_at=time.monotonic())
            if fence_reasons
            else _Process(
                installation.pk,
                installation.epoch,
                _revisions(),
                compared=compared,
                missed=missed,
                looked_at=time.monotonic(),
            )
        )
        _is_suspect = False
        _proven = None if fence_reasons else (installation.pk, installation.epoch)
        if fence_reasons:
            shared_facts.remove(shared_facts.INSTALLATION)
        else:
            shared_facts.write(shared_facts.INSTALLATION, [str(installation.pk), installation.epoch, VERSION])
        return fence_reasons


def _shared_proof() -> tuple[UUID, int] | None:
    """Return installation and epoch that another process has proven within a day, for one that starts during an outage."""
    return shared_facts.read(shared_facts.INSTALLATION, lambda shared: (UUID(shared[0]), int(shared[1])))


def _is_due(uncompared: int | None) -> bool:
    if uncompared is None or uncompared in _process.compared:
        return False
    # One that does not respond takes seconds to say so. A new one has not been tried.
    return uncompared not in _process.missed or time.monotonic() >= _process.looked_at + _LOOK_AGAIN_SECONDS


def _examined() -> tuple[Installation, tuple[str, ...], frozenset[int], frozenset[int]]:
    present = list(DatabaseServer.objects.filter(detached=False).order_by("pk"))
    # Before the global database is read: it raises its counters first.
    marks = read_marks(present)
    compared = frozenset(marks)
    missed = frozenset(server.pk for server in present) - compared
    installation = Installation.objects.first()
    if installation is None:
        return *_established(present, marks), compared, missed
    differences = list(_differences(installation, marks))
    if not differences:
        for server in present:
            if server.pk in marks and marks[server.pk] is None:
                set_mark(server, installation)
    return installation, tuple(differences), compared, missed


def _established(
    present: Sequence[DatabaseServer], marks: dict[int, ServerMark | None]
) -> tuple[Installation, tuple[str, ...]]:
    """Make this a new installation, or an upgraded one, if no server belongs to one already."""
    if taken := [server.name for server in present if marks.get(server.pk) is not None]:
        return Installation(), (
            f"The database servers {', '.join(taken)} belong to an installation that the global database does not know: it is "
            "older than they are.",
        )
    with transaction.atomic():
        advisory_lock("default", _ESTABLISH_LOCK)
        installation, _ = Installation.objects.get_or_create(one=True, defaults={"id": uuid4(), "home": home()})
    for server in present:
        if server.pk in marks:
            set_mark(server, installation)
    return installation, ()


def _differences(installation: Installation, marks: dict[int, ServerMark | None]) -> list[str]:
    differences = []
    if installation.home != home():
        differences.append(
            "This global database was restored from a dump, copied, or moved to another database server."
        )
    marked = [(server, mark) for server in DatabaseServer.objects.order_by("name") if (mark := marks.get(server.pk))]
    revisions: dict[UUID, int] = {}
    beats: dict[UUID, int] = {}
    for server, mark in marked:
        revisions[mark.id] = max(revisions.get(mark.id, 0), server.fence_revision)
        beats[mark.id] = max(beats.get(mark.id, 0), server.fence_beats)
    for server, mark in marked:
        if mark.installation != installation.pk:
            differences.append(f"The database server {server.name} belongs to another installation.")
        elif mark.epoch > installation.epoch:
            differences.append(
                f"Another copy of this installation was adopted: {server.name} has its epoch {mark.epoch}."
            )
        elif mark.revision > revisions[mark.id]:
            number = mark.revision - revisions[mark.id]
            differences.append(
                f"The global database is older than the database server {server.name}: {number} created, moved or deleted "
                "databases are missing in it."
            )
        elif mark.beats > beats[mark.id] + TOLERATED_BEATS:
            differences.append(
                f"The global database is older than the database server {server.name}, which an installation has used since."
            )
    return differences


def note_new_connection(raw: psycopg.Connection[object]) -> None:
    """Notice a restored global database in a running process: a restore ends the connections to it.

    Called with each new connection to the global database. One statement, which reads no server.
    """
    global _process, _proven, _away_until, _is_suspect
    known = _process
    if known.installation is None:
        return
    try:
        row = raw.execute(
            "SELECT (SELECT id FROM tenants_installation), (SELECT epoch FROM tenants_installation),"
            " (SELECT coalesce(sum(fence_revision), 0) FROM tenants_databaseserver)"
        ).fetchone()
    except psycopg.Error:
        # It was not compared, and the database behind the connection may be a restored one.
        _process = _Process()
        return
    assert isinstance(row, tuple)
    installation, epoch, revisions = row
    if installation != known.installation or epoch < known.epoch or revisions < known.revisions:
        _process, _proven, _away_until, _is_suspect = _Process(), None, 0.0, True
    else:
        # In the same object: another thread may have found meanwhile that the installation is fenced.
        known.revisions = max(known.revisions, revisions)


def home() -> str:
    """Return which physical database this is. A failover and a restart do not change it; a dump that is restored does."""
    (may_read,) = fetch_row("default", "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')")
    cluster = "(SELECT system_identifier FROM pg_control_system())" if may_read else "0"
    (identifier,) = fetch_row(
        "default",
        f"SELECT concat_ws(':', {cluster}, (SELECT oid FROM pg_database WHERE datname = current_database()),"
        " 'tenants_installation'::regclass::oid)",
    )
    return str(identifier)


def _revisions() -> int:
    return sum(DatabaseServer.objects.values_list("fence_revision", flat=True))


# --- marks of servers ------------------------------------------------------------------------------------------------


def read_marks(present: Sequence[DatabaseServer]) -> dict[int, ServerMark | None]:
    """Return the marks by server id: None for a server without one. Servers that do not respond are missing."""
    marks: dict[int, ServerMark | None] = {}
    reached: list[tuple[DatabaseServer, servers.Parameters]] = []
    for server in present:
        try:
            reached.append((server, parameters_of_mark(server)))
        except (ApiError, SealBroken) as problem:  # its URL cannot be read: no connection to it is opened either
            log.warning("fence_not_read", server=server.name, cause=type(problem).__qualname__)
    if not reached:
        return marks

    def read(server: DatabaseServer, parameters: servers.Parameters) -> None:
        try:
            marks[server.pk] = mark_at(parameters)
        except psycopg.Error as problem:
            # Its mark is compared before a connection to one of its databases is used (`require_compared`).
            log.warning("fence_not_read", server=server.name, cause=type(problem).__qualname__)

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fence") as threads:
        list(threads.map(lambda each: read(*each), reached))
    return marks


def read_mark(server: DatabaseServer) -> ServerMark | None:
    """Return the mark of one server. Raises psycopg.Error if it does not respond."""
    return mark_at(parameters_of_mark(server))


def parameters_of_mark(server: DatabaseServer) -> servers.Parameters:
    """Return the parameters of a direct connection to the database with the server's mark."""
    return servers.parameters(server.pk, server.revision, direct=True) | {"dbname": database_of_marks()}


def mark_at(parameters: servers.Parameters) -> ServerMark | None:
    """Return the mark that these connection parameters lead to, if there is one. Raises psycopg.Error."""
    try:
        with servers.connect_for_maintenance(parameters) as raw:
            return mark_in(raw)
    except psycopg.errors.UndefinedTable:
        return None
    except psycopg.OperationalError as problem:
        if is_missing(problem, database_of_marks()):
            return None
        raise


def mark_in(raw: servers.Connection) -> ServerMark | None:
    """Return the mark in the database of this connection. Raises psycopg.errors.UndefinedTable if it has no table of marks."""
    row = raw.execute("SELECT id, installation, epoch, revision, beats FROM server_mark").fetchone()
    return None if row is None else ServerMark(*row)


def is_missing(problem: psycopg.OperationalError, database: str) -> bool:
    """Return whether a connection failed because the server has no such database."""
    # libpq reports the end of a connection's start without its SQLSTATE (3D000).
    return f'database "{database}" does not exist' in str(problem)


def set_mark(server: DatabaseServer, installation: Installation) -> None:
    """Mark a server as this installation's. Its counters never go down."""
    with servers.maintenance(server) as raw:
        known = raw.execute("SELECT 1 FROM pg_database WHERE datname = %s", [database_of_marks()]).fetchone()
        if known is None:
            # Another process may do the same at this moment.
            with suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                raw.execute(
                    sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(
                        sql.Identifier(database_of_marks())
                    )
                )
    row = DatabaseServer.objects.values_list("fence_revision", "fence_beats").get(pk=server.pk)
    with servers.connect_for_maintenance(parameters_of_mark(server)) as raw:
        if raw.execute("SELECT to_regclass('server_mark')").fetchone() == (None,):
            with suppress(psycopg.errors.UniqueViolation):
                raw.execute(MARK_TABLE)
        raw.execute(_SET, [installation.pk, installation.epoch, *row])

"""Move tenants to other database servers: online by logical replication, or by a dump while the tenant is read-only.

Online, the copy is filled from a dump of one moment and then gets every later change, while the tenant stays in use. Writes
are paused only until the copy has the last changes and all tables have been compared. Where a server does not allow
replication, the tenant is read-only from the dump to the switch.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from psycopg import Error as DriverError
from psycopg.errors import QueryCanceled

from identity_platform.transfer.temporary_folder import temporary_folder
from tenants import job_steps
from tenants.copies import databases, dumps
from tenants.copies.comparison import Comparison, Side, comparison, copy_large_objects, copy_sequences
from tenants.database_servers import replication, servers
from tenants.database_servers.queries import connection_to
from tenants.entering.schema import schema_version
from tenants.errors import CopyFailed, ServerUnfit, WrongState
from tenants.failure_reasons import reason_of
from tenants.jobs.relocation import DUMP, copy_into, drop_copies, fill, held_still, new_copy, switch
from tenants.lifecycle.capacity import region_of, server_with_room
from tenants.lifecycle.transitions import change_state, mapping_of, reload_mapping
from tenants.models import DatabaseServer, TenantDatabase
from tenants.states import State

# The longest time that an online move rejects writes before it gives up and tries again later.
PAUSE_SECONDS: Final = 5.0
_ATTEMPTS: Final = 5
# A pause begins when the copy is at most this far behind: some milliseconds of work.
_NEARLY_CAUGHT_UP: Final = 256 * 1024
# How long the copy may be without getting closer.
_STALLED_SECONDS: Final = 120.0
_REPORT_SECONDS: Final = 2.0

Progress = Callable[[str], None]


class _PauseTooLong(Exception):
    """Writes were rejected for as long as allowed; the move is tried again later."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A move that was not made. `obstacles` are the reasons why it cannot be online, one sentence each."""

    source: str
    target: str
    obstacles: list[str]


def plan_move(*, tenant_id: UUID, server: str) -> Plan:
    """Return how `move_tenant` would move the tenant. Changes nothing. Raises the same errors."""
    mapping, target = _checked(tenant_id, server)
    if target.pk == mapping.server_id:
        raise WrongState(f"The tenant is already on {target.name}.")
    _reject_older_server(mapping.server, target)
    return Plan(mapping.server.name, target.name, _obstacles(mapping, target))


def move_tenant(
    *,
    tenant_id: UUID,
    server: str,
    offline: bool = False,
    pause: float = PAUSE_SECONDS,
    progress: Progress = lambda line: None,
) -> TenantDatabase:
    """Move a tenant to another database server, with its sessions, keys and audit log.

    Online if both servers allow it, unless `offline`: writes are rejected for at most `pause` seconds in a row. Otherwise its
    data can be read but not written during the whole move. `progress` gets a line for each step.

    Raises UnknownTenant, NoRoom, WrongRegion, ServerUnfit (an older PostgreSQL), WrongState (already on that server),
    CopyFailed, ProgramMissing, JobRunning; then nothing was changed.
    """
    mapping, target = _checked(tenant_id, server)
    if target.pk == mapping.server_id:
        # An earlier move was killed after the switch: only the old database remains to be dropped.
        with databases.job_lock(mapping.server, tenant_id):
            if drop_copies(tenant_id):
                return mapping
        raise WrongState(f"The tenant is already on {target.name}.")
    _reject_older_server(mapping.server, target)
    with databases.job_lock(mapping.server, tenant_id) as raw:
        reload_mapping(mapping)
        obstacles = ["It was asked for."] if offline else _obstacles(mapping, target)
        if obstacles:
            progress(f"By dump and restore, read-only meanwhile: {' '.join(obstacles)}")
            _move_offline(raw, mapping, target)
        else:
            _move_online(raw, mapping, target, pause, progress)
    return mapping_of(tenant_id)


def _checked(tenant_id: UUID, server: str) -> tuple[TenantDatabase, DatabaseServer]:
    mapping = mapping_of(tenant_id)
    return mapping, server_with_room(server, region_of(mapping.tenant.settings))


def _reject_older_server(source: DatabaseServer, target: DatabaseServer) -> None:
    # pg_restore does not read the files of a newer pg_dump.
    has, needed = (_major_version(server) for server in (target, source))
    if has < needed:
        raise ServerUnfit(
            f"{target.name} runs PostgreSQL {has} and {source.name} runs {needed}. A tenant moves to the same or a newer "
            "version only: upgrade the target first."
        )


def _major_version(server: DatabaseServer) -> int:
    with servers.maintenance(server) as raw:
        return raw.info.server_version // 10_000


def _obstacles(mapping: TenantDatabase, target: DatabaseServer) -> list[str]:
    if mapping.status not in (State.ACTIVE, State.SUSPENDED, State.MOVING):
        return [f"The tenant is {mapping.status}."]
    if mapping.schema_version != schema_version():
        # A restored copy is migrated, which replication could not follow.
        return ["The schema of the tenant is not that of this release; migrate_tenants brings it up to date."]
    return replication.obstacles(mapping.server, mapping.name, target)


# --- by dump and restore ---------------------------------------------------------------------------------------------


def _move_offline(raw: databases.Raw, mapping: TenantDatabase, target: DatabaseServer) -> None:
    with temporary_folder() as folder, held_still(raw, mapping):
        dump = folder / DUMP
        dumps.write_out(mapping.server, mapping.name, dump)
        job_steps.completed("written out")
        with connection_to(mapping.server, mapping.name) as old:
            rows = databases.row_counts(old)
        name = copy_into(target, mapping.pk, dump, rows)
        job_steps.completed("verified")
        switch(mapping, target, name, "tenant.moved")
        drop_copies(mapping.pk)


# --- online ----------------------------------------------------------------------------------------------------------


def _move_online(
    raw: databases.Raw, mapping: TenantDatabase, target: DatabaseServer, pause: float, progress: Progress
) -> None:
    _undo_killed_move(raw, mapping)
    try:
        copy = Side(target, _replicate(mapping, target, progress))
        _switch_in_time(raw, mapping, copy, pause, progress)
    except BaseException as problem:
        # With an unreachable target its copy stays, and check_tenants finds it.
        with suppress(DriverError):
            drop_copies(mapping.pk)
        if isinstance(problem, DriverError):
            raise CopyFailed(f"The move was given up: {reason_of(problem)}. Nothing was changed.") from problem
        raise
    drop_copies(mapping.pk)


def _undo_killed_move(raw: databases.Raw, mapping: TenantDatabase) -> None:
    if mapping.name in databases.read_only_names(raw):
        databases.make_writable(raw, mapping.name)
    if mapping.status == State.MOVING:
        change_state(mapping.pk, State.ACTIVE, only_from=State.MOVING, by_job=True)


def _replicate(mapping: TenantDatabase, target: DatabaseServer, progress: Progress) -> str:
    """Fill a copy with the data of one moment and subscribe it to all later changes; return its name."""
    name = new_copy(target, mapping.pk)
    with temporary_folder() as folder:
        dump = folder / DUMP
        with replication.published(mapping.server, mapping.name, mapping.pk) as snapshot:
            job_steps.completed("published")
            with connection_to(mapping.server, mapping.name) as old:
                progress(f"Online: copying {databases.displayed_size(old)}; the tenant stays in use.")
                databases.begin_reading(old, snapshot)
                dumps.write_out(mapping.server, mapping.name, dump, snapshot=snapshot)
                job_steps.completed("written out")
                rows = databases.row_counts(old)
        fill(target, name, dump, rows)
    replication.subscribe(target, name, source=mapping.server, database=mapping.name, tenant_id=mapping.pk)
    job_steps.completed("subscribed")
    progress(f"{sum(rows.values()):,} rows in {len(rows)} tables are copied.")
    with connection_to(target, name) as new:
        # Else the first requests after the switch would be planned without statistics.
        databases.vacuum(new)
    return name


def _catch_up(raw: databases.Raw, tenant_id: UUID, target: DatabaseServer, progress: Progress) -> None:
    """Wait until the copy has nearly all changes. Raises CopyFailed if it gets no closer."""
    best, since, told = None, time.monotonic(), 0.0
    with servers.maintenance(target) as other:
        while True:
            behind = replication.bytes_behind(raw, replication.applied(other, tenant_id), tenant_id)
            if behind is not None and behind <= _NEARLY_CAUGHT_UP:
                job_steps.completed("caught up")
                return
            now = time.monotonic()
            if behind is not None and (best is None or behind < best):
                best, since = behind, now
            if now - since > _STALLED_SECONDS:
                raise CopyFailed(
                    f"The copy on {target.name} gets no closer to the original: the log of that server may have the reason. "
                    "Nothing was changed."
                )
            if now - told > _REPORT_SECONDS:
                told = now
                progress(
                    "The replication starts." if behind is None else f"The copy is {behind:,} bytes of WAL behind."
                )
            time.sleep(0.05)


def _switch_in_time(raw: databases.Raw, mapping: TenantDatabase, copy: Side, pause: float, progress: Progress) -> None:
    """Switch to the copy, in the first of some attempts that needs no longer pause. Raises CopyFailed."""
    for attempt in range(1, _ATTEMPTS + 1):
        _catch_up(raw, mapping.pk, copy.server, progress)
        with (
            comparison(Side(mapping.server, mapping.name), copy) as compared,
            servers.maintenance(copy.server) as other,
        ):
            _rehearse(compared, pause, progress)
            try:
                _switch_online(raw, other, mapping, copy, compared, pause, progress)
                return
            except _PauseTooLong:
                progress(f"Attempt {attempt} of {_ATTEMPTS}: not done within {pause:g} s. Writes are accepted again.")
        if attempt < _ATTEMPTS:
            time.sleep(5 * attempt)
    raise CopyFailed(
        f"The copy could not be completed and compared within {pause:g} s, in {_ATTEMPTS} attempts. Allow a longer pause "
        "(--pause), try again when the servers are less busy, or use --offline. Nothing was changed."
    )


def _rehearse(compared: Comparison, pause: float, progress: Progress) -> None:
    """Read both sides as in the pause, which loads the tables into memory and tells how long it takes."""
    began = time.monotonic()
    try:
        compared.checksums(lambda: pause)
    except QueryCanceled as late:
        raise CopyFailed(
            f"Reading one of the tables takes longer than {pause:g} s, for which writes may be paused. Allow a longer pause "
            "(--pause) or use --offline. Nothing was changed."
        ) from late
    progress(f"Comparing all tables takes {time.monotonic() - began:.2f} s.")


def _switch_online(
    raw: databases.Raw,
    other: databases.Raw,
    mapping: TenantDatabase,
    copy: Side,
    compared: Comparison,
    pause: float,
    progress: Progress,
) -> None:
    """Pause writes, complete the copy, compare it, and switch to it. Raises _PauseTooLong, CopyFailed.

    `raw` leads to the source, `other` to the target.
    """
    began = time.monotonic()

    def left() -> float:
        return began + pause - time.monotonic()

    with held_still(raw, mapping, keep_copies=True, spared=compared.processes):
        last = replication.end_of_wal(raw)
        while not replication.is_past(other, replication.applied(other, mapping.pk), last):
            if left() < 0:
                raise _PauseTooLong
            time.sleep(0.005)
        job_steps.completed("applied")
        old, new = compared.source[0], compared.copy[0]
        copy_sequences(old, new)
        copy_large_objects(old, new)
        try:
            rows = compared.rows(left)
        except QueryCanceled as late:
            raise _PauseTooLong from late
        # The changes were committed without waiting for the disk.
        replication.end_of_wal(other)
        if left() < 0:
            raise _PauseTooLong
        job_steps.completed("verified")
        switch(mapping, copy.server, copy.database, "tenant.moved")
        paused = time.monotonic() - began
    progress(f"{rows:,} rows compared equal. Writes were paused for {paused:.2f} s.")

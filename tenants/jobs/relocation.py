"""Back up and restore tenants, and what restoring and moving (`moves`) have in common.

Both fill a new database and then switch the mapping to it in one statement. Until then the old database is
the valid one, and read-only. Both are reserved in the global database while they exist, as a spare for this tenant, so a
crash leaves no orphan: running the command again drops the copy, and so does `check_tenants`.
"""

import errno
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils.timezone import now
from psycopg import Error as DriverError

from identity_platform.audit.writer import record_for_platform
from identity_platform.crypto import SealBroken
from identity_platform.postgresql.statement_timeout import no_timeout
from identity_platform.transfer.files import reject_special
from identity_platform.transfer.temporary_folder import temporary_folder
from tenants import job_steps, keys
from tenants.addresses import former_slugs
from tenants.copies import databases, dumps
from tenants.copies.database_names import new_database_name
from tenants.copies.sealed_archives import new_archive, opened_archive
from tenants.database_servers import fence_counters, marks, replication, servers
from tenants.database_servers.queries import connection_to
from tenants.entering import lookup
from tenants.entering.schema import is_current, is_older, schema_version, upgrade
from tenants.entering.target import DatabaseTarget
from tenants.errors import BackupUnfit, CopyFailed, SlugTaken, UpgradeFailed, WrongState
from tenants.failure_reasons import reason_of
from tenants.journals import revocations
from tenants.lifecycle import final_backups
from tenants.lifecycle.capacity import check_region, region_of, server_with_room
from tenants.lifecycle.transitions import change_state, forget_in_global_database, mapping_of, reload_mapping
from tenants.models import DatabaseServer, FinalBackup, Tenant, TenantDatabase, WarmDatabase, WebhookTenant
from tenants.records import reconciling
from tenants.records.tenant_records import TENANTS, changing_tenant
from tenants.signals import tenant_restored
from tenants.states import State

MANIFEST, DUMP = "tenant.json", "database.dump"
_PURPOSE = "backup"
# Marks a WarmDatabase row as the copy for a tenant, in place of a schema version.
_COPY_FOR = "for "


def copy_of(spare: WarmDatabase) -> UUID | None:
    """Return the tenant that this copy is created for, or None for an ordinary spare."""
    if not spare.schema_version.startswith(_COPY_FOR):
        return None
    return UUID(spare.schema_version.removeprefix(_COPY_FOR))


def back_up_tenant(*, tenant_id: UUID, file: Path) -> None:
    """Write a consistent snapshot of a tenant's database into one file, while the tenant stays in use.

    The file appears only when complete, with mode 0600. It is encrypted under the tenant's data key, which stays in the
    global database. Raises OSError, UnknownTenant, DataKeyLocked, CopyFailed, ProgramMissing.
    """
    reject_special(file)
    mapping, key, begun_at = mapping_of(tenant_id), keys.tenant_key(tenant_id), now()
    with new_archive(file, data_key=key, purpose=_PURPOSE) as packed:
        try:
            with databases.snapshot_of(mapping.server, mapping.name) as (raw, snapshot):
                with packed.open(DUMP, "w", force_zip64=True) as dump:
                    dumps.stream_out(mapping.server, mapping.name, dump, snapshot=snapshot)
                job_steps.completed("dumped")
                rows = databases.row_counts(raw)
        except DriverError as problem:
            raise CopyFailed(f"The database cannot be read: {reason_of(problem)}.") from problem
        manifest = {
            "format": 1,
            "tenant_id": str(tenant_id),
            "slug": mapping.tenant.slug,
            "schema_version": mapping.schema_version,
            "begun_at": begun_at.isoformat(),
            "rows": rows,
        }
        packed.writestr(MANIFEST, json.dumps(manifest))
    record_for_platform("tenant.backed_up", tenant_id=tenant_id, target=("tenant", tenant_id))


def restore_tenant(*, tenant_id: UUID, file: Path) -> TenantDatabase:
    """Restore a tenant's database from a backup. Changes since the backup are lost.

    What was revoked since stays revoked (`tenants.journals.revocations`). Sessions, tickets and mailed links of the backup are
    closed, since they may have been closed after it. A failed tenant becomes active, a suspended one stays suspended. Raises
    UnknownTenant, BackupUnfit, WrongState, CopyFailed, ProgramMissing, JobRunning, DataKeyLocked; then nothing was changed.
    """
    mapping = mapping_of(tenant_id)
    with temporary_folder() as folder:
        dump, rows = _unpacked(file, tenant_id, folder)
        with databases.job_lock(mapping.server, tenant_id) as raw, held_still(raw, mapping):
            if databases.exists(raw, mapping.name):
                # After the last write to it. What it has revoked holds in the restored one.
                before = DatabaseTarget.for_maintenance(mapping.server, mapping.name)
                revocations.deliver_read_only(tenant_id, before)
            name = copy_into(mapping.server, tenant_id, dump, rows)
            revoked = revocations.withdraw(tenant_id, DatabaseTarget.for_maintenance(mapping.server, name))
            switch(mapping, mapping.server, name, "tenant.restored", restored=True, details={"revoked": revoked})
            drop_copies(tenant_id)
    tenant_restored.send(sender=restore_tenant, tenant_id=tenant_id)
    return mapping_of(tenant_id)


def try_backup(*, tenant_id: UUID, file: Path) -> None:
    """Restore a backup into a copy, compare its rows with those that were backed up, and drop it.

    The tenant stays in use. Raises UnknownTenant, BackupUnfit, CopyFailed, ProgramMissing, JobRunning, DataKeyLocked.
    """
    mapping = mapping_of(tenant_id)
    with temporary_folder() as folder:
        dump, rows = _unpacked(file, tenant_id, folder)
        with databases.job_lock(mapping.server, tenant_id):
            try:
                copy_into(mapping.server, tenant_id, dump, rows)
            finally:
                drop_copies(tenant_id)


def restore_deleted_tenant(*, file: Path, slug: str | None = None, server: str | None = None) -> TenantDatabase:
    """Restore a deleted tenant with its data from its final backup. It becomes suspended.

    Its sessions, sign-ins, links and invitations stay closed. `slug` replaces the old slug. Raises BackupUnfit (also after
    the grace period, and for the file of an earlier deletion), SlugTaken, WrongState (a username or another unique value is
    in use), NoRoom, UnknownServer, WrongRegion, CopyFailed, ProgramMissing, JobRunning, OSError; then nothing was changed.
    """
    mapping = final_backups.deleted_tenant_of(file)
    with temporary_folder() as folder, no_timeout(), databases.job_lock(mapping.server, mapping.pk):
        dump, manifest, rows = final_backups.unpack(file, mapping.pk, folder)
        final_backups.reject_other(mapping.pk, manifest)
        _reject_newer(manifest["schema_version"])
        _reject_forgotten(manifest.get("begun_at"))
        target = server_with_room(server, region_of(manifest["settings"]))
        try:
            name = copy_into(target, mapping.pk, dump)
            revocations.withdraw(mapping.pk, DatabaseTarget.for_maintenance(target, name))
            fence_counters.advance(target)
            _put_back(mapping.pk, manifest, rows, slug or str(manifest["slug"]), server=target, name=name)
        finally:
            # A copy that has become the tenant's database is no longer listed.
            drop_copies(mapping.pk)
    lookup.forget()
    final_backups.remove(file)
    tenant_restored.send(sender=restore_deleted_tenant, tenant_id=mapping.pk)
    return mapping_of(mapping.pk)


def _put_back(
    tenant_id: UUID, manifest: final_backups.Manifest, rows: str, slug: str, *, server: DatabaseServer, name: str
) -> None:
    try:
        with transaction.atomic():
            # Prevents a second restore, and expiry meanwhile.
            if not FinalBackup.objects.select_for_update().filter(pk=tenant_id).exists():
                raise BackupUnfit("The tenant can no longer be restored: the key of its final backup has been deleted.")
            region = region_of(manifest["settings"])
            # Locked, so that its region does not change meanwhile.
            check_region(DatabaseServer.objects.select_for_update(no_key=True).get(pk=server.pk), region)
            # Metrics or chain ends may have been written after the deletion.
            forget_in_global_database(tenant_id, keep_key=True)
            Tenant.objects.filter(pk=tenant_id).update(
                slug=slug, name=manifest["name"], settings=manifest["settings"], updated_at=now()
            )
            former_slugs.reject_reserved(slug, tenant_id)
            final_backups.put_back(rows)
            former_slugs.release(tenant_id, slug)
            TenantDatabase.objects.filter(pk=tenant_id).update(
                server=server,
                name=name,
                schema_version=schema_version(),
                status=State.SUSPENDED,
                reason="",
                placement_revision=F("placement_revision") + 1,
                copies_lag=False,
            )
            # The backup has those of an earlier moment.
            TENANTS.apply(tenant_id, direct=True, newer=True)
            reconciling.apply_others(tenant_id, direct=True, newer=True)
            WarmDatabase.objects.filter(name=name).delete()
            FinalBackup.objects.filter(pk=tenant_id).delete()
            record_for_platform("tenant.undeleted", tenant_id=tenant_id, target=("tenant", tenant_id))
    except IntegrityError as clash:
        if "tenant_slug_unique" in str(clash):
            raise SlugTaken(f"Another tenant has the slug {slug} now. Choose another one with --slug.") from clash
        raise WrongState(
            f"A unique value of the tenant is now in use elsewhere, such as a username or passkey domain: {reason_of(clash)}."
        ) from clash
    job_steps.completed("switched")


def drop_copies(tenant_id: UUID) -> int:
    """Drop leftover copies of moves and restores, and their replication; return how many. The caller holds the lock."""
    copies = _copies(tenant_id)
    if copies:
        _end_replication(tenant_id, copies)
    for copy in copies:
        with servers.maintenance(copy.server) as raw:
            databases.drop(raw, copy.name)
        copy.delete()
    return len(copies)


def _copies(tenant_id: UUID) -> list[WarmDatabase]:
    return list(WarmDatabase.objects.select_related("server").filter(schema_version=f"{_COPY_FOR}{tenant_id}"))


def has_copy(tenant_id: UUID) -> bool:
    """Return whether a copy of a move or restore is reserved for the tenant."""
    return bool(_copies(tenant_id))


def _end_replication(tenant_id: UUID, copies: Iterable[WarmDatabase]) -> None:
    """Drop what an online move has left: subscription, slot and publication. Works before and after the switch."""
    mapping = TenantDatabase.objects.select_related("server").get(pk=tenant_id)
    with servers.maintenance(mapping.server) as raw:
        try:
            # First: a subscription whose connection was terminated connects again and uses the slot.
            replication.unsubscribe(raw, mapping.name)
            for copy in copies:
                with servers.maintenance(copy.server) as other:
                    replication.unsubscribe(other, copy.name)
        finally:
            # Also if the copy's server is unreachable: the slot would fill the disk of this one.
            if databases.exists(raw, mapping.name):
                replication.unpublish(raw, mapping.name)


def clear_up(tenant_id: UUID) -> None:
    """Drop leftovers of interrupted moves and restores of the tenant. Raises JobRunning."""
    mapping = TenantDatabase.objects.select_related("server").get(pk=tenant_id)
    with databases.job_lock(mapping.server, tenant_id) as raw:
        # A replication slot may be left without a copy, for example after the global database was restored.
        _end_replication(tenant_id, _copies(tenant_id))
        drop_copies(tenant_id)
        mapping.refresh_from_db(fields=["status", "name", "server"])
        if mapping.status != State.MOVING and mapping.name in databases.read_only_names(raw):
            databases.make_writable(raw, mapping.name)


@contextmanager
def held_still(
    raw: databases.Raw, mapping: TenantDatabase, *, keep_copies: bool = False, spared: Sequence[int] = ()
) -> Iterator[None]:
    """Make the tenant's database read-only; at the end make it writable, unless the mapping has switched to another.

    Then its copies are dropped too, unless `keep_copies`. `raw` holds the tenant's lock. `spared` are processes of
    read-only sessions, which are not ended.
    """
    reload_mapping(mapping)
    if mapping.status == State.ACTIVE:
        change_state(mapping.pk, State.MOVING, only_from=State.ACTIVE, by_job=True)
    elif mapping.status not in (State.MOVING, State.SUSPENDED, State.FAILED):
        raise WrongState(f"The tenant is {mapping.status}.")
    job_steps.completed("moving")
    database = mapping.name
    try:
        # A suspended tenant's too: its audit trail is still sealed and purged.
        databases.make_read_only(raw, database, spared=spared)
        yield
    finally:
        if TenantDatabase.objects.filter(pk=mapping.pk, name=database).exists():
            databases.make_writable(raw, database)
            with suppress(WrongState):
                change_state(mapping.pk, State.ACTIVE, only_from=State.MOVING, by_job=True)
            if not keep_copies:
                drop_copies(mapping.pk)


def copy_into(server: DatabaseServer, tenant_id: UUID, dump: Path, rows: dict[str, int] | None = None) -> str:
    """Fill a new database from the dump, which must have these rows, and migrate it; return its name."""
    name = new_copy(server, tenant_id)
    fill(server, name, dump, rows)
    # A backup may be older than the mark, or from before a change of the installation.
    marks.stamp(server, name, tenant_id)
    return name


def new_copy(server: DatabaseServer, tenant_id: UUID) -> str:
    """Create an empty database that is reserved as the tenant's copy, in place of earlier ones; return its name."""
    drop_copies(tenant_id)
    name = new_database_name()
    WarmDatabase.objects.create(server=server, name=name, schema_version=f"{_COPY_FOR}{tenant_id}", ready=False)
    job_steps.completed("reserved")
    with servers.maintenance(server) as raw:
        databases.create_empty(raw, name)
    job_steps.completed("created")
    return name


def fill(server: DatabaseServer, name: str, dump: Path, rows: dict[str, int] | None = None) -> None:
    """Fill an empty database from the dump, which must have these rows, and migrate it."""
    dumps.read_in(server, name, dump)
    with servers.maintenance(server) as raw:
        databases.set_limits(raw, name)
    job_steps.completed("read in")
    if rows is not None:
        with connection_to(server, name) as raw:
            if databases.row_counts(raw) != rows:
                raise CopyFailed("The copy has fewer rows than the original. Nothing was changed.")
    copied = DatabaseTarget.for_maintenance(server, name)
    if not is_current(copied):
        try:
            upgrade(copied)
        except UpgradeFailed as failure:
            raise CopyFailed(str(failure)) from failure


def switch(
    mapping: TenantDatabase,
    server: DatabaseServer,
    name: str,
    action: str,
    *,
    restored: bool = False,
    details: Mapping[str, object] | None = None,
) -> None:
    """Make a filled copy the tenant's database, and reserve the old one as a copy in its place.

    It gets the present records of the tenant and its clients first, a `restored` one also in place of newer ones.
    """
    fence_counters.advance(mapping.server)
    with changing_tenant(mapping.pk, direct=True):
        if server.pk != mapping.server_id:
            # Both rows locked: neither the tenant's region nor the server's changes meanwhile.
            tenant = Tenant.objects.select_for_update().get(pk=mapping.pk)
            check_region(DatabaseServer.objects.select_for_update().get(pk=server.pk), region_of(tenant.settings))
        rows = TenantDatabase.objects.select_for_update().filter(pk=mapping.pk)
        to = State.SUSPENDED if rows.get().status == State.SUSPENDED else State.ACTIVE
        rows.update(
            server=server,
            name=name,
            schema_version=schema_version(),
            status=to,
            reason="",
            placement_revision=F("placement_revision") + 1,
        )
        if restored:
            # It gets all present copies.
            rows.update(copies_lag=False)
            # The backup may have webhook endpoints. If it has none, the deliverer deletes this row again.
            WebhookTenant.objects.update_or_create(tenant_id=mapping.pk, defaults={"touched_at": now()})
        reconciling.apply_others(mapping.pk, direct=True, newer=restored)
        WarmDatabase.objects.filter(name=name).update(server=mapping.server, name=mapping.name)
        record_for_platform(action, tenant_id=mapping.pk, target=("tenant", mapping.pk), details=details)
    lookup.forget()
    job_steps.completed("switched")


def _unpacked(file: Path, tenant_id: UUID, folder: Path) -> tuple[Path, dict[str, int]]:
    """Decrypt a backup into the folder; return its dump and the number of rows of every table."""
    try:
        with opened_archive(file, folder, data_key=keys.tenant_key(tenant_id), purpose=_PURPOSE) as packed:
            manifest = json.loads(packed.read(MANIFEST))
            packed.extract(DUMP, folder)
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CopyFailed(f"No space to unpack it in {folder.parent}. Set TMPDIR to another folder.") from problem
        raise BackupUnfit(f"The backup {file} cannot be read: {problem.strerror or problem}.") from problem
    except SealBroken as problem:
        raise BackupUnfit(
            f"{file} is no backup of this tenant, or it was altered or cut off: it does not open with the tenant's data key."
        ) from problem
    _reject_newer(manifest["schema_version"])
    _reject_forgotten(manifest.get("begun_at"))
    return folder / DUMP, manifest["rows"]


def _reject_newer(made_by: str) -> None:
    if made_by != schema_version() and not is_older(made_by):
        raise BackupUnfit("This backup was made by a newer release. Upgrade this platform first.")


def _reject_forgotten(begun_at: str | None) -> None:
    """Reject a backup that is older than the journal: what was revoked between them is no longer known."""
    days = settings.REVOCATION_JOURNAL_DAYS
    if days and (begun_at is None or datetime.fromisoformat(begun_at) < now() - timedelta(days=days)):
        raise BackupUnfit(
            f"Revocations are kept for {days} days (REVOCATION_JOURNAL_DAYS), and the backup is older: restoring it could "
            "bring back users, keys and roles that were revoked."
        )

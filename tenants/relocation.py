"""Backing a tenant up, bringing it back, moving it to another server.

Bringing back and moving fill a new database and then switch the mapping to it, in one statement; until then the old
database is the whole truth, and nothing can be written into it. Both databases are promised in the global database
before they exist and until they are gone, as a spare that is meant for this tenant, so a crash leaves no orphan: the same
command run again drops it, and so does `check_tenants`.
"""

import errno
import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db import IntegrityError, connections, transaction
from django.utils.timezone import now
from psycopg import sql

from identity_platform.audit.writer import record_for_platform
from identity_platform.postgresql.statement_timeout import no_timeout
from identity_platform.transfer.files import reject_special
from identity_platform.transfer.temporary_folder import temporary_folder
from tenants import databases, dumps, final_backups, lookup, steps
from tenants.capacity import server_with_room
from tenants.errors import BackupUnfit, CopyFailed, SlugTaken, UnknownTenant, UpgradeFailed, WrongState
from tenants.models import DatabaseServer, FinalBackup, Tenant, TenantDatabase, WarmDatabase, WebhookTenant
from tenants.provisioning import change_state, forget_in_global_database, reload_mapping
from tenants.router import lives_in_tenant
from tenants.schema import is_current, is_older, reason_of, schema_version, upgrade
from tenants.states import State
from tenants.target import TENANT_ALIAS, DatabaseTarget, in_target
from tenants.warm_pool import new_database_name

MANIFEST, DUMP = "tenant.json", "database.dump"
_MEANT_FOR = "for "


def meant_for(spare: WarmDatabase) -> UUID | None:
    """The tenant for which this copy is being made; none if it is an ordinary spare."""
    if not spare.schema_version.startswith(_MEANT_FOR):
        return None
    return UUID(spare.schema_version.removeprefix(_MEANT_FOR))


def back_up_tenant(*, tenant_id: UUID, file: Path) -> dict[str, Any]:
    """Write a tenant's database into one file, as it is at one moment; people go on working meanwhile.

    Gives the manifest. The file is whole or not there, and readable by its owner alone. What is sealed in it opens only
    with the tenant's data key, which stays in the global database. Raises OSError; raises UnknownTenant,
    CopyFailed, ProgramMissing.
    """
    reject_special(file)
    mapping = _mapping(tenant_id)
    manifest = {
        "tenant_id": str(tenant_id),
        "slug": mapping.tenant.slug,
        "schema_version": mapping.schema_version,
        "format": 1,
    }
    with temporary_folder(file.parent) as folder:
        dump, draft = folder / DUMP, folder / "draft"
        dumps.write_out(mapping.server, mapping.name, dump)
        steps.completed("written out")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as out:
            with zipfile.ZipFile(out, "w") as packed:
                packed.writestr(MANIFEST, json.dumps(manifest))
                packed.write(dump, DUMP)
            # Before it takes the place of an older one.
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
    record_for_platform("tenant.backed_up", tenant_id=tenant_id, target=("tenant", tenant_id))
    return manifest


def restore_tenant(*, tenant_id: UUID, file: Path) -> TenantDatabase:
    """Put a tenant's database back to what it was in the backup; what has happened since is gone.

    What was open at the moment of the backup (sessions, tickets, links in mails) is closed, as it may have been since. A
    failed tenant becomes active, a suspended one stays suspended. Raises UnknownTenant, BackupUnfit, WrongState,
    CopyFailed, ProgramMissing, JobRunning; then everything is as it was.
    """
    mapping = _mapping(tenant_id)
    with temporary_folder() as folder:
        dump = _unpacked(file, tenant_id, folder)
        with databases.job_lock(mapping.server, tenant_id) as raw, _held_still(raw, mapping):
            name = _copy_into(mapping.server, tenant_id, dump)
            _close(DatabaseTarget.for_maintenance(mapping.server, name))
            # The backup may hold webhook endpoints that there were none of any more. Without any, the deliverer strikes
            # the tenant off again.
            WebhookTenant.objects.update_or_create(tenant_id=tenant_id, defaults={"touched_at": now()})
            _switch(mapping, mapping.server, name, "tenant.restored")
    return _mapping(tenant_id)


def restore_deleted_tenant(*, file: Path, slug: str | None = None, server: str | None = None) -> TenantDatabase:
    """Bring a deleted tenant back from its final backup, suspended, with all that belonged to it.

    Its sessions, sign-ins, links and invitations stay closed. `slug` gives it another one, in case the old one is in
    use. Raises BackupUnfit (also when the grace period is over), SlugTaken, WrongState (a username or another unique value
    is in use), NoRoom, UnknownServer, CopyFailed, ProgramMissing, JobRunning, OSError; then everything is as it was.
    """
    mapping, target = final_backups.deleted_tenant_of(file), server_with_room(server)
    with temporary_folder() as folder, no_timeout(), databases.job_lock(mapping.server, mapping.pk):
        dump, manifest, rows = final_backups.unpack(file, mapping.pk, folder)
        made_by = str(manifest["schema_version"])
        if made_by != schema_version() and not is_older(made_by):
            raise BackupUnfit("This backup is of a newer release: upgrade this one first.")
        try:
            name = _copy_into(target, mapping.pk, dump)
            _close(DatabaseTarget.for_maintenance(target, name))
            _put_back(mapping.pk, manifest, rows, slug or manifest["slug"], server=target, name=name)
        finally:
            # Unless it has become the tenant's database.
            drop_copies(mapping.pk)
    lookup.forget()
    final_backups.remove(file)
    return _mapping(mapping.pk)


def _put_back(
    tenant_id: UUID, manifest: dict[str, Any], rows: str, slug: str, *, server: DatabaseServer, name: str
) -> None:
    try:
        with transaction.atomic():
            # Against a second restore, and against the end of the grace period.
            if not FinalBackup.objects.select_for_update().filter(pk=tenant_id).exists():
                raise BackupUnfit("The tenant can no longer be restored: the key of its final backup has been deleted.")
            # A collector or a sealer may have written something after the deletion.
            forget_in_global_database(tenant_id, keep_key=True)
            Tenant.objects.filter(pk=tenant_id).update(
                slug=slug, name=manifest["name"], settings=manifest["settings"], updated_at=now()
            )
            final_backups.put_back(rows)
            TenantDatabase.objects.filter(pk=tenant_id).update(
                server=server, name=name, schema_version=schema_version(), status=State.SUSPENDED, reason=""
            )
            WarmDatabase.objects.filter(name=name).delete()
            FinalBackup.objects.filter(pk=tenant_id).delete()
            record_for_platform("tenant.undeleted", tenant_id=tenant_id, target=("tenant", tenant_id))
    except IntegrityError as clash:
        if "tenant_slug_unique" in str(clash):
            raise SlugTaken(f"Another tenant has the slug {slug} now: choose another one with --slug.") from clash
        raise WrongState(
            f"Something of the tenant is in use by now, such as a username or a passkey domain: {reason_of(clash)}."
        ) from clash
    steps.completed("switched")


def move_tenant(*, tenant_id: UUID, server: str) -> TenantDatabase:
    """Move a tenant to another database server; meanwhile its people read, and nobody writes.

    Raises UnknownTenant, NoRoom, WrongState (it is there already), CopyFailed, ProgramMissing, JobRunning; then
    everything is as it was.
    """
    mapping, target = _mapping(tenant_id), server_with_room(server)
    if target.pk == mapping.server_id:
        # Killed after the switch: only the old database is left to be dropped.
        with databases.job_lock(mapping.server, tenant_id):
            if drop_copies(tenant_id):
                return mapping
        raise WrongState(f"The tenant is on {target.name} already.")
    with (
        temporary_folder() as folder,
        databases.job_lock(mapping.server, tenant_id) as raw,
        _held_still(raw, mapping),
    ):
        dump = folder / DUMP
        dumps.write_out(mapping.server, mapping.name, dump)
        steps.completed("written out")
        name = _copy_into(target, tenant_id, dump, like=mapping)
        steps.completed("verified")
        _switch(mapping, target, name, "tenant.moved")
    return _mapping(tenant_id)


def drop_copies(tenant_id: UUID) -> int:
    """Drop what moves and restores of the tenant have left, by whoever holds the tenant's lock; gives how many."""
    copies = list(WarmDatabase.objects.select_related("server").filter(schema_version=f"{_MEANT_FOR}{tenant_id}"))
    for copy in copies:
        with databases.maintenance_connection(copy.server) as raw:
            databases.drop(raw, copy.name)
        copy.delete()
    return len(copies)


def clear_up(tenant_id: UUID) -> None:
    """Drop what interrupted moves and restores of the tenant have left. Raises JobRunning."""
    mapping = TenantDatabase.objects.select_related("server").get(pk=tenant_id)
    with databases.job_lock(mapping.server, tenant_id) as raw:
        drop_copies(tenant_id)
        mapping.refresh_from_db(fields=["status", "name", "server"])
        if mapping.status != State.MOVING and mapping.name in databases.read_only_names(raw):
            databases.make_writable(raw, mapping.name)


def _mapping(tenant_id: UUID) -> TenantDatabase:
    mapping = TenantDatabase.objects.select_related("tenant", "server").filter(pk=tenant_id).first()
    if mapping is None or mapping.status == State.DELETED:
        raise UnknownTenant
    return mapping


@contextmanager
def _held_still(raw: databases.Raw, mapping: TenantDatabase) -> Iterator[None]:
    """Keep the tenant's database as it is; at the end it is let go, unless the mapping has left it."""
    reload_mapping(mapping)
    if mapping.status == State.ACTIVE:
        change_state(mapping.pk, State.MOVING, only_from=State.ACTIVE)
    elif mapping.status not in (State.MOVING, State.SUSPENDED, State.FAILED):
        raise WrongState(f"The tenant is {mapping.status}.")
    steps.completed("moving")
    database = mapping.name
    try:
        # A suspended tenant's too: operators look into it, and its trail is sealed and purged.
        databases.make_read_only(raw, database)
        yield
    finally:
        if TenantDatabase.objects.filter(pk=mapping.pk, name=database).exists():
            databases.make_writable(raw, database)
            with suppress(WrongState):
                change_state(mapping.pk, State.ACTIVE, only_from=State.MOVING)
            drop_copies(mapping.pk)


def _copy_into(server: DatabaseServer, tenant_id: UUID, dump: Path, like: TenantDatabase | None = None) -> str:
    drop_copies(tenant_id)
    name = new_database_name()
    WarmDatabase.objects.create(server=server, name=name, schema_version=f"{_MEANT_FOR}{tenant_id}", ready=False)
    steps.completed("reserved")
    with databases.maintenance_connection(server) as raw:
        raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(sql.Identifier(name)))
        steps.completed("created")
        dumps.read_in(server, name, dump)
        databases.set_limits(raw, name)
    steps.completed("read in")
    if like is not None and _row_counts(like.server, like.name) != _row_counts(server, name):
        raise CopyFailed("The copy does not hold as many rows as the original: everything is as it was.")
    copied = DatabaseTarget.for_maintenance(server, name)
    if not is_current(copied):
        try:
            upgrade(copied)
        except UpgradeFailed as failure:
            raise CopyFailed(str(failure)) from failure
    return name


def _close(database: DatabaseTarget) -> None:
    """End what a copy of a backup holds open: somebody may have closed it since, because it was stolen.

    A model says itself how, by a class method `close_all(moment)`.
    """
    with in_target(database), transaction.atomic(using=TENANT_ALIAS):
        with connections[TENANT_ALIAS].cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 0")
        for model in apps.get_models():
            if lives_in_tenant(model) and hasattr(model, "close_all"):
                model.close_all(now())


def _row_counts(server: DatabaseServer, database: str) -> dict[str, int]:
    with databases.connection_to(server, database) as raw:
        tables = raw.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1"
        ).fetchall()
        count = sql.SQL("SELECT count(*) FROM {}")
        return {name: raw.execute(count.format(sql.Identifier(name))).fetchall()[0][0] for (name,) in tables}


def _switch(mapping: TenantDatabase, server: DatabaseServer, name: str, action: str) -> None:
    with transaction.atomic():
        rows = TenantDatabase.objects.select_for_update().filter(pk=mapping.pk)
        to = State.SUSPENDED if rows.get().status == State.SUSPENDED else State.ACTIVE
        rows.update(server=server, name=name, schema_version=schema_version(), status=to, reason="")
        WarmDatabase.objects.filter(name=name).update(server=mapping.server, name=mapping.name)
        record_for_platform(action, tenant_id=mapping.pk, target=("tenant", mapping.pk))
    lookup.forget()
    steps.completed("switched")
    drop_copies(mapping.pk)


def _unpacked(file: Path, tenant_id: UUID, folder: Path) -> Path:
    try:
        with zipfile.ZipFile(file) as packed:
            manifest = json.loads(packed.read(MANIFEST))
            owner, slug, made_by = manifest["tenant_id"], manifest["slug"], str(manifest["schema_version"])
            packed.extract(DUMP, folder)
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CopyFailed(f"No room to unpack it in {folder.parent}: TMPDIR names another folder.") from problem
        raise BackupUnfit(f"The backup {file} cannot be read: {problem.strerror or problem}.") from problem
    except (KeyError, TypeError, ValueError, zipfile.BadZipFile) as problem:
        raise BackupUnfit(f"{file} is no backup of a tenant.") from problem
    if owner != str(tenant_id):
        raise BackupUnfit(f"This is a backup of {slug}, another tenant.")
    if made_by != schema_version() and not is_older(made_by):
        raise BackupUnfit("This backup is of a newer release: upgrade this one first.")
    return folder / DUMP

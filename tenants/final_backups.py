"""Final backups: one encrypted file of each deleted tenant, which can bring it back for DELETED_TENANT_BACKUP_DAYS.

The file holds the dump of the tenant's database and what the global database knew of the tenant. It is sealed under the
tenant's data key, which stays in the global database until the backup expires. Deleting that key makes the file
unreadable, and every copy of it as well.
"""

import io
import json
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.core import serializers
from django.db import models, transaction
from django.utils.timezone import now

from identity_platform.audit.models import ChainHead
from identity_platform.audit.writer import record_for_platform
from identity_platform.crypto import SealBroken, SealingWriter, unseal_file
from identity_platform.transfer.temporary_folder import temporary_folder
from tenants import dumps, keys, steps
from tenants.errors import BackupUnfit, CopyFailed, DataKeyLocked, ProgramMissing
from tenants.models import DataKey, FinalBackup, Tenant, TenantDatabase
from tenants.states import State

log = structlog.get_logger("identity.tenants")

DUMP, MANIFEST, ROWS = "database.dump", "tenant.json", "rows.json"
_PURPOSE = "final backup"
_PREFIX, _SUFFIX = "deleted-", ".backup"
# Rows that pass by then are sessions, tickets, links and reports: what was open at the deletion stays closed.
_FAR = datetime(9000, 1, 1, tzinfo=UTC)
_INSTEAD = (
    "Nothing was deleted. To delete the tenant without a final backup: --no-final-backup, or `final_backup: false`."
)


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a deletion has left: until when the tenant can be brought back, and from which file; or neither."""

    until: datetime | None = None
    file: str = ""


def write(mapping: TenantDatabase) -> Path:
    """Write the final backup of a tenant that nobody can use any more; return its file.

    Raises CopyFailed and ProgramMissing; they say how to delete the tenant all the same.
    """
    try:
        settings.BACKUP_FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = settings.BACKUP_FOLDER / f"{_PREFIX}{mapping.pk}{_SUFFIX}"
        with temporary_folder(settings.BACKUP_FOLDER) as folder:
            draft = folder / "draft"
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as out:
                _write_into(out, mapping)
                out.flush()
                os.fsync(out.fileno())
            steps.completed("written out")
            draft.replace(file)
    except OSError as problem:
        # Its words may name paths.
        reason = f"The backup folder cannot be written to ({problem.strerror or type(problem).__name__})."
        raise CopyFailed(f"No final backup: {reason} {_INSTEAD}") from problem
    except DataKeyLocked as problem:
        raise CopyFailed(f"No final backup: its data key is missing or cannot be opened. {_INSTEAD}") from problem
    except (CopyFailed, ProgramMissing) as problem:
        raise type(problem)(f"No final backup: {problem.text} {_INSTEAD}") from problem
    return file


def _write_into(out: Any, mapping: TenantDatabase) -> None:
    sealed = SealingWriter(out, data_key=keys.tenant_key(mapping.pk), purpose=_PURPOSE)
    with sealed, zipfile.ZipFile(sealed, "w") as packed:
        with packed.open(DUMP, "w", force_zip64=True) as dump:
            dumps.stream_out(mapping.server, mapping.name, dump)
        # After the dump, which may take long: until the tenant is deleted, operators can change these rows.
        manifest = {
            "format": 1,
            "tenant_id": str(mapping.pk),
            "name": mapping.tenant.name,
            "slug": mapping.tenant.slug,
            "settings": mapping.tenant.settings,
            "schema_version": mapping.schema_version,
        }
        packed.writestr(MANIFEST, json.dumps(manifest))
        packed.writestr(ROWS, _rows_of(mapping.pk))


def _rows_of(tenant_id: UUID) -> str:
    """The rows of the global database that go with the tenant, as JSON of Django's serializers."""
    found: dict[type[models.Model], set[Any]] = {}

    def collect(model: type[models.Model], owners: set[Any]) -> None:
        for relation in model._meta.get_fields(include_hidden=True):
            if not isinstance(relation, models.ManyToOneRel) or relation.on_delete is not models.CASCADE:
                continue
            related: Any = relation.related_model
            # The serializer writes the rows of a ManyToManyField with their owner.
            if related in (TenantDatabase, FinalBackup) or related._meta.auto_created:
                continue
            new: set[Any] = set()
            for some in _batches(owners):
                rows = related._base_manager.filter(**{f"{relation.field.name}__in": some})
                if hasattr(related, "expired"):
                    rows = rows.exclude(related.expired(_FAR))
                new |= set(rows.values_list("pk", flat=True))
            new -= found.setdefault(related, set())
            if new:
                found[related] |= new
                collect(related, new)

    collect(Tenant, {tenant_id})
    everything: list[models.Model] = list(ChainHead.objects.filter(owner=str(tenant_id)))
    for model, chosen in found.items():
        for some in _batches(chosen):
            everything += model._base_manager.filter(pk__in=some)
    return str(serializers.serialize("json", everything))


def _batches(keys: set[Any]) -> Iterator[list[Any]]:
    """Yield the keys in lists that fit into one statement: PostgreSQL takes 65,535 parameters."""
    left = iter(keys)
    while some := list(islice(left, 10_000)):
        yield some


def keep(tenant_id: UUID, file: Path) -> None:
    """Note the final backup, in the caller's transaction."""
    until = now() + timedelta(days=settings.DELETED_TENANT_BACKUP_DAYS)
    FinalBackup.objects.update_or_create(tenant_id=tenant_id, defaults={"file": str(file), "delete_after": until})


def kept(tenant_id: UUID) -> Deletion:
    """What is kept of a deleted tenant."""
    backup = FinalBackup.objects.filter(pk=tenant_id).first()
    return Deletion(backup.delete_after, backup.file) if backup else Deletion()


# --- bringing back ---------------------------------------------------------------------------------------------------


def deleted_tenant_of(file: Path) -> TenantDatabase:
    """The deleted tenant whose final backup this file is, by the file's name. Raises BackupUnfit."""
    try:
        tenant_id = UUID(file.name.removeprefix(_PREFIX).removesuffix(_SUFFIX))
    except ValueError as problem:
        raise BackupUnfit(f"A final backup is called {_PREFIX}TENANT_ID{_SUFFIX}.") from problem
    mapping = TenantDatabase.objects.select_related("tenant", "server").filter(pk=tenant_id).first()
    if mapping is None or mapping.status != State.DELETED:
        raise BackupUnfit("This is the final backup of no deleted tenant of this platform.")
    if not FinalBackup.objects.filter(pk=tenant_id).exists():
        raise BackupUnfit("The tenant can no longer be restored: the key of its final backup has been deleted.")
    return mapping


def unpack(file: Path, tenant_id: UUID, folder: Path) -> tuple[Path, dict[str, Any], str]:
    """Open a final backup into the folder; return its dump, its manifest and its rows.

    Raises BackupUnfit, DataKeyLocked, OSError.
    """
    whole = folder / "opened"
    try:
        with file.open("rb") as source, whole.open("wb") as out:
            unseal_file(source, out, data_key=keys.tenant_key(tenant_id), purpose=_PURPOSE)
        with zipfile.ZipFile(whole) as packed:
            manifest = json.loads(packed.read(MANIFEST))
            rows = packed.read(ROWS).decode()
            packed.extract(DUMP, folder)
    except SealBroken as problem:
        raise BackupUnfit(f"The final backup does not open: {problem}") from problem
    whole.unlink()
    return folder / DUMP, manifest, rows


def put_back(rows: str) -> None:
    """Insert the rows of the global database again, in the caller's transaction.

    Raises IntegrityError if one is in use by now, such as a username or a claimed domain. No row of another tenant is
    overwritten.
    """
    for row in serializers.deserialize("json", io.StringIO(rows), ignorenonexistent=True):
        row.save(force_insert=True)


# --- the end of the grace period -------------------------------------------------------------------------------------


def expire() -> int:
    """Delete final backups whose time is over, each with the data key that opens it; return how many.

    A file that another machine keeps is unreadable from then on; the next run there removes it.
    """
    expired = 0
    for tenant_id in list(FinalBackup.objects.filter(delete_after__lte=now()).values_list("pk", flat=True)):
        with transaction.atomic():
            # A restore may hold it.
            due = FinalBackup.objects.select_for_update(skip_locked=True).filter(pk=tenant_id, delete_after__lte=now())
            backup = due.first()
            if backup is None:
                continue
            DataKey.objects.filter(owner=str(tenant_id)).delete()
            backup.delete()
            record_for_platform("tenant.final_backup_deleted", tenant_id=tenant_id, target=("tenant", tenant_id))
        keys.forget(str(tenant_id))
        remove(Path(backup.file))
        expired += 1
    _sweep()
    return expired


def remove(file: Path) -> None:
    """Remove a final backup's file; what cannot be removed now is tried again by the next `expire`."""
    try:
        file.unlink(missing_ok=True)
    except OSError as problem:
        log.warning("final_backup_not_removed", cause=type(problem).__name__)


def _sweep() -> None:
    """Remove files whose tenant is deleted and whose key is gone."""
    for file in settings.BACKUP_FOLDER.glob(f"{_PREFIX}*{_SUFFIX}"):
        try:
            tenant_id = UUID(file.name.removeprefix(_PREFIX).removesuffix(_SUFFIX))
        except ValueError:
            continue
        deleted = TenantDatabase.objects.filter(pk=tenant_id, status=State.DELETED, tenant__final_backup=None)
        if deleted.exists():
            remove(file)

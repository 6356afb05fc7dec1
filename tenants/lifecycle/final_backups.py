"""Final backups: one encrypted file per deleted tenant, from which it can be restored for DELETED_TENANT_BACKUP_DAYS.

The file holds the dump of the tenant's database and the tenant's rows of the global database. It is sealed under the
tenant's data key, which stays in the global database until the backup expires. Deleting that key makes the file and every
copy of it unreadable.
"""

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import NotRequired, TypedDict
from uuid import UUID

import structlog
from django.conf import settings
from django.core import serializers
from django.db import models, transaction
from django.utils.timezone import now

from identity_platform.audit.models import ChainHead
from identity_platform.audit.writer import record_for_platform
from identity_platform.crypto import SealBroken
from identity_platform.folders import make_folder
from tenants import keys
from tenants.addresses import former_slugs
from tenants.copies import dumps
from tenants.copies.sealed_archives import new_archive, opened_archive
from tenants.errors import BackupUnfit, CopyFailed, DataKeyLocked, ProgramMissing
from tenants.models import DataKey, DomainClaim, FinalBackup, FormerSlug, Tenant, TenantDatabase, WebAuthnClaim
from tenants.states import State

log = structlog.get_logger("identity.tenants")

DUMP, MANIFEST, ROWS = "database.dump", "tenant.json", "rows.json"
_PURPOSE = "final backup"
_PREFIX, _SUFFIX = "deleted-", ".backup"
# Rows that expire by then (sessions, tickets, links, reports) are not restored.
_FAR = datetime(9000, 1, 1, tzinfo=UTC)
_INSTEAD = (
    "Nothing was deleted. To delete the tenant without a final backup, use --no-final-backup or `final_backup: false`."
)


class Manifest(TypedDict):
    """What a final backup says about its tenant."""

    format: int
    tenant_id: str
    name: str
    slug: str
    settings: dict[str, object]
    schema_version: str
    # Files of earlier releases have none.
    begun_at: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Deletion:
    """Until when a deleted tenant can be restored, and from which file; or neither."""

    until: datetime | None = None
    file: str = ""


def write(mapping: TenantDatabase) -> tuple[Path, datetime]:
    """Write the final backup of a read-only tenant; return its file, and when it was begun.

    Raises CopyFailed, ProgramMissing; the messages say how to delete the tenant without a backup.
    """
    try:
        make_folder(settings.BACKUP_FOLDER)
        file = settings.BACKUP_FOLDER / f"{_PREFIX}{mapping.pk}{_SUFFIX}"
        with new_archive(file, data_key=keys.tenant_key(mapping.pk), purpose=_PURPOSE) as packed:
            begun_at = now()
            _fill(packed, mapping, begun_at)
    except OSError as problem:
        # The full message may contain paths.
        reason = f"The backup folder cannot be written to ({problem.strerror or type(problem).__name__})."
        raise CopyFailed(f"No final backup: {reason} {_INSTEAD}") from problem
    except DataKeyLocked as problem:
        raise CopyFailed(f"No final backup: the data key is missing or cannot be decrypted. {_INSTEAD}") from problem
    except (CopyFailed, ProgramMissing) as problem:
        raise type(problem)(f"No final backup: {problem.text} {_INSTEAD}") from problem
    return file, begun_at


def _fill(packed: zipfile.ZipFile, mapping: TenantDatabase, begun_at: datetime) -> None:
    with packed.open(DUMP, "w", force_zip64=True) as dump:
        dumps.stream_out(mapping.server, mapping.name, dump)
    # After the dump, which can take long: operators can change these rows until the tenant is deleted.
    manifest: Manifest = {
        "format": 1,
        "tenant_id": str(mapping.pk),
        "name": mapping.tenant.name,
        "slug": mapping.tenant.slug,
        "settings": mapping.tenant.settings,
        "schema_version": mapping.schema_version,
        "begun_at": begun_at.isoformat(),
    }
    packed.writestr(MANIFEST, json.dumps(manifest))
    packed.writestr(ROWS, _rows_of(mapping.pk))


def _rows_of(tenant_id: UUID) -> str:
    """Return the tenant's rows of the global database as JSON of Django's serializers."""
    ids_by_model: dict[type[models.Model], set[object]] = {}

    def collect(model: type[models.Model], owners: set[object]) -> None:
        for relation in model._meta.get_fields(include_hidden=True):
            if not isinstance(relation, models.ManyToOneRel) or relation.on_delete is not models.CASCADE:
                continue
            related: type[models.Model] = relation.related_model
            # The serializer includes ManyToManyField rows in their owner.
            # Former slugs stay in the global database, reserved.
            if related in (TenantDatabase, FinalBackup, FormerSlug) or related._meta.auto_created:
                continue
            new: set[object] = set()
            for some in _batches(owners):
                rows = related._base_manager.filter(**{f"{relation.field.name}__in": some})
                if hasattr(related, "expired"):
                    rows = rows.exclude(related.expired(_FAR))
                new |= set(rows.values_list("pk", flat=True))
            new -= ids_by_model.setdefault(related, set())
            if new:
                ids_by_model[related] |= new
                collect(related, new)

    collect(Tenant, {tenant_id})
    everything: list[models.Model] = list(ChainHead.objects.filter(owner=str(tenant_id)))
    for model, chosen in ids_by_model.items():
        for some in _batches(chosen):
            everything += model._base_manager.filter(pk__in=some)
    return str(serializers.serialize("json", everything))


def _batches(keys: set[object]) -> Iterator[list[object]]:
    """Yield the keys in lists that fit into one statement: PostgreSQL takes 65,535 parameters."""
    left = iter(keys)
    while some := list(islice(left, 10_000)):
        yield some


def keep(tenant_id: UUID, file: Path, begun_at: datetime) -> None:
    """Store the final backup's row, in the caller's transaction."""
    until = now() + timedelta(days=settings.DELETED_TENANT_BACKUP_DAYS)
    FinalBackup.objects.update_or_create(
        tenant_id=tenant_id, defaults={"file": str(file), "begun_at": begun_at, "delete_after": until}
    )


def deletion_of(tenant_id: UUID) -> Deletion:
    """Return what is kept of a deleted tenant."""
    backup = FinalBackup.objects.filter(pk=tenant_id).first()
    return Deletion(backup.delete_after, backup.file) if backup else Deletion()


# --- restoring -------------------------------------------------------------------------------------------------------


def deleted_tenant_of(file: Path) -> TenantDatabase:
    """Return the deleted tenant that this final backup belongs to, by the file's name. Raises BackupUnfit."""
    try:
        tenant_id = UUID(file.name.removeprefix(_PREFIX).removesuffix(_SUFFIX))
    except ValueError as problem:
        raise BackupUnfit(f"The name of a final backup is {_PREFIX}TENANT_ID{_SUFFIX}.") from problem
    mapping = TenantDatabase.objects.select_related("tenant", "server").filter(pk=tenant_id).first()
    if mapping is None or mapping.status != State.DELETED:
        raise BackupUnfit("No deleted tenant of this platform has this final backup.")
    if not FinalBackup.objects.filter(pk=tenant_id).exists():
        raise BackupUnfit("The tenant can no longer be restored: the key of its final backup has been deleted.")
    return mapping


def unpack(file: Path, tenant_id: UUID, folder: Path) -> tuple[Path, Manifest, str]:
    """Decrypt a final backup into the folder; return its dump, its manifest and its rows.

    Raises BackupUnfit, DataKeyLocked, OSError.
    """
    try:
        with opened_archive(file, folder, data_key=keys.tenant_key(tenant_id), purpose=_PURPOSE) as packed:
            manifest = json.loads(packed.read(MANIFEST))
            rows = packed.read(ROWS).decode()
            packed.extract(DUMP, folder)
    except SealBroken as problem:
        raise BackupUnfit(f"The final backup cannot be decrypted: {problem}") from problem
    return folder / DUMP, manifest, rows


def reject_other(tenant_id: UUID, manifest: Manifest) -> None:
    """Raise BackupUnfit unless this is the final backup of the tenant's last deletion. The caller holds the tenant's lock.

    A copy of an earlier deletion's has admins, secrets of clients and redirect URIs that were taken away since: they are in the
    global database, whose revocations no journal has.
    """
    backup = FinalBackup.objects.filter(pk=tenant_id).first()
    if backup is None:
        raise BackupUnfit("The tenant can no longer be restored: the key of its final backup has been deleted.")
    begun_at = manifest.get("begun_at")
    # A row of the earlier release does not say which backup it is.
    if backup.begun_at is None or (begun_at and datetime.fromisoformat(begun_at) == backup.begun_at):
        return
    backup_moment = (
        _moment(datetime.fromisoformat(begun_at)) if begun_at else "at an unknown moment, by an earlier release"
    )
    raise BackupUnfit(
        f"This is not the final backup of the last deletion of this tenant. This file was begun {backup_moment}, and the "
        f"expected one {_moment(backup.begun_at)}; it was written to {backup.file}. Nothing was changed. Find that file, "
        "or a copy of it, and restore it. A file of an earlier deletion would bring back admins, secrets of clients and "
        "redirect URIs that were removed since."
    )


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f} UTC"


def put_back(rows: str) -> None:
    """Insert the rows of the global database again, in the caller's transaction. Never overwrites rows of other tenants.

    A domain that another tenant has verified since the deletion stays with that tenant. Raises IntegrityError if another
    unique value is in use, such as a username.
    """
    deserialized = list(serializers.deserialize("json", io.StringIO(rows), ignorenonexistent=True))
    domains = [row.object.pk for row in deserialized if isinstance(row.object, DomainClaim)]
    taken = set(DomainClaim.objects.filter(pk__in=domains).values_list("pk", flat=True))
    for row in deserialized:
        # The claim of a sign-in domain is for its passkeys too.
        if not (isinstance(row.object, DomainClaim | WebAuthnClaim) and row.object.pk in taken):
            row.save(force_insert=True)


# --- expiry ----------------------------------------------------------------------------------------------------------


def expire() -> int:
    """Delete expired final backups, each with its data key; return how many.

    A file on another machine is unreadable from then on; the next run there removes it.
    """
    expired = 0
    for tenant_id in list(FinalBackup.objects.filter(delete_after__lte=now()).values_list("pk", flat=True)):
        with transaction.atomic():
            # Skips a row that a restore holds.
            due = FinalBackup.objects.select_for_update(skip_locked=True).filter(pk=tenant_id, delete_after__lte=now())
            backup = due.first()
            if backup is None:
                continue
            DataKey.objects.filter(owner=str(tenant_id)).delete()
            former_slugs.free(tenant_id)
            backup.delete()
            record_for_platform("tenant.final_backup_deleted", tenant_id=tenant_id, target=("tenant", tenant_id))
        keys.forget(str(tenant_id))
        remove(Path(backup.file))
        expired += 1
    _sweep()
    return expired


def remove(file: Path) -> None:
    """Remove a final backup's file. If that fails, the next `expire` tries again."""
    try:
        file.unlink(missing_ok=True)
    except OSError as problem:
        log.warning("final_backup_not_removed", cause=type(problem).__name__)


def _sweep() -> None:
    """Remove files of deleted tenants whose key is deleted."""
    for file in settings.BACKUP_FOLDER.glob(f"{_PREFIX}*{_SUFFIX}"):
        try:
            tenant_id = UUID(file.name.removeprefix(_PREFIX).removesuffix(_SUFFIX))
        except ValueError:
            continue
        deleted = TenantDatabase.objects.filter(pk=tenant_id, status=State.DELETED, tenant__final_backup=None)
        if deleted.exists():
            remove(file)

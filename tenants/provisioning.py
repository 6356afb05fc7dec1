"""Create, suspend, resume and delete tenants. Every job can be killed at any point and run again.

The mapping row comes first: it reserves the database's name for the tenant. The database is taken from the warm pool or
copied from a migrated template (STRATEGY wal_log), and is used only once the mapping says `active`. A job holds the tenant's
lock while it works on its database (`databases.job_lock`).
"""

import re
import secrets
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from identity_platform.api.errors import ApiError
from identity_platform.audit.chain import PLATFORM
from identity_platform.audit.models import ChainHead
from identity_platform.audit.writer import record_for_platform
from identity_platform.postgresql.row_errors import first_or
from identity_platform.postgresql.statement_timeout import no_timeout
from identity_platform.task_queue import run_soon
from tenants import (
    databases,
    fences,
    final_backups,
    former_slugs,
    keys,
    lookup,
    marks,
    operating_modes,
    revocations,
    steps,
    warm_pool,
)
from tenants.capacity import check_region, region_of, server_with_room
from tenants.errors import CopyFailed, JobRunning, SlugTaken, UnknownTenant, WrongState
from tenants.final_backups import Deletion
from tenants.models import DatabaseServer, DataKey, FinalBackup, FormerSlug, Tenant, TenantDatabase
from tenants.queries import reserve_tenant
from tenants.schema import is_current, schema_version, upgrade
from tenants.signals import tenant_created, tenant_forgotten, tenant_resuming
from tenants.states import FOLLOWS, Purpose, State
from tenants.target import DatabaseTarget
from tenants.webauthn_claims import claim

log = structlog.get_logger("identity.tenants")

LONGEST_SLUG: Final = 50
# Used for a name without a Latin letter or digit, such as a Chinese one.
FALLBACK: Final = "tenant"

# Letters that Unicode does not decompose into ASCII, and the German umlauts, which would lose their second letter.
_LATIN: Final = str.maketrans(
    {
        "ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss",
        "æ": "ae", "œ": "oe", "ø": "o", "ǿ": "o", "ǽ": "ae", "ǣ": "ae",
        "đ": "d", "ð": "d", "þ": "th", "ħ": "h", "ı": "i", "ĸ": "k", "ł": "l", "ŋ": "n", "ŧ": "t",
        "ƀ": "b", "ɓ": "b", "ƈ": "c", "ɖ": "d", "ɗ": "d", "ǝ": "e", "ə": "e", "ɛ": "e", "ƒ": "f", "ǥ": "g", "ɠ": "g",
        "ɣ": "g", "ɨ": "i", "ƙ": "k", "ƚ": "l", "ɲ": "n", "ɔ": "o", "ƥ": "p", "ƭ": "t", "ʉ": "u", "ʊ": "u", "ʋ": "v",
        "ƴ": "y", "ƶ": "z", "ʒ": "z",
    }
)  # fmt: skip


def slug_of(name: str) -> str:
    """Return a slug for a name: ASCII, lower case, words joined by dashes, at most 50 characters.

    `Größe & Söhne` becomes `groesse-soehne`.
    """
    # Composed first, so that a letter followed by a combining mark is found in the table too.
    spelled = unicodedata.normalize("NFC", name).lower().translate(_LATIN)
    plain = unicodedata.normalize("NFKD", spelled).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:LONGEST_SLUG].strip("-") or FALLBACK


# Creates what the caller wants to exist with the tenant, in the transaction that activates it.
Initialize = Callable[[Tenant], None]

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# A generated slug gets a random suffix when it is taken.
SLUG_TRIES = 8


def is_reserved(slug: str) -> bool:
    """Return whether commands use this word for something else: the platform's audit trail, or a tenant's id."""
    return slug == PLATFORM or _ID.fullmatch(slug) is not None


# --- creating --------------------------------------------------------------------------------------------------------


def create_tenant(
    *,
    name: str,
    slug: str | None = None,
    tenant_settings: dict[str, object] | None = None,
    server: str | None = None,
    server_labels: Sequence[str] = (),
    initialize: Initialize | None = None,
) -> Tenant:
    """Create a tenant with a database of its own, ready when this returns.

    Without `slug` one is generated from the name. If the provisioning of a tenant with this slug was interrupted, it is
    finished, with the name and settings given now. A new one is on a server with all `server_labels`. Raises SlugTaken,
    NoRoom, WrongRegion, RelyingPartyTaken, ReadOnlyMode and what `initialize` raises; errors of the database server are not
    translated.
    """
    own = tenant_settings or {}
    if slug is not None and (interrupted := _interrupted(slug)) is not None:
        return _finish_interrupted(interrupted, name, own, initialize)
    chosen = server_with_room(server, region_of(own), server_labels)
    operating_modes.check(Purpose.WRITE, chosen.pk)
    fences.advance(chosen)
    while True:
        try:
            return _create(chosen, name, slug, own, initialize)
        except _SpareRejected as rejected:
            warm_pool.set_aside(rejected.database)
            log.error(
                "spare_database_rejected",
                server=chosen.name,
                database=rejected.database,
                reason=str(rejected.__cause__),
            )


class _SpareRejected(Exception):
    def __init__(self, database: str) -> None:
        super().__init__(database)
        self.database = database


def _create(
    chosen: DatabaseServer, name: str, slug: str | None, own: dict[str, object], initialize: Initialize | None
) -> Tenant:
    with ExitStack() as job:
        with transaction.atomic():
            _lock_region(chosen, region_of(own))
            tenant = _reserve(chosen, name, slug, own)
            claim(tenant.pk, before={}, after=own)
            mapping = tenant.database
            if mapping.status == State.ACTIVE:
                _initialize(tenant, initialize)
                # Last: what is rolled back for another reason leaves no mark.
                _take(mapping)
                # A spare became its database.
                transaction.on_commit(lambda: run_soon(warm_pool.REFILL), robust=True)
                return tenant
            # Locked before the row is visible: an unlocked one counts as interrupted.
            raw = job.enter_context(databases.job_lock(chosen, tenant.pk))
        steps.completed("mapped")
        try:
            _finish(raw, mapping, initialize)
        except ApiError:
            # Rejected (the admin's name is taken), not interrupted: nothing is kept.
            _undo(raw, mapping)
            raise
    return tenant


def _take(mapping: TenantDatabase) -> None:
    try:
        marks.take(mapping.server, mapping.name, mapping.pk)
    except marks.SpareUnfit as unfit:
        raise _SpareRejected(mapping.name) from unfit


def _reserve(server: DatabaseServer, name: str, slug: str | None, own: dict[str, object]) -> Tenant:
    """Write the tenant's rows, in the caller's transaction. Raises SlugTaken."""
    # A stated slug is taken as it is.
    for candidate in [slug] if slug else _slugs_for(name):
        tenant = reserve_tenant(server, name=name, slug=candidate, tenant_settings=own)
        if tenant is not None:
            former_slugs.reject_reserved(candidate, tenant.pk)
            return tenant
    raise SlugTaken


def _slugs_for(name: str) -> list[str]:
    generated = slug_of(name)
    suffixed = [f"{generated[:45]}-{secrets.token_hex(2)}" for _ in range(SLUG_TRIES - 1)]
    proposed = suffixed if is_reserved(generated) else [generated, *suffixed]
    reserved = former_slugs.reserved(proposed)
    return [slug for slug in proposed if slug not in reserved]


def propose_slug(name: str) -> str:
    """Return a slug made of the name that no tenant has now. Raises SlugTaken."""
    proposed = _slugs_for(name)
    taken = set(Tenant.objects.filter(slug__in=proposed).values_list("slug", flat=True))
    for slug in proposed:
        if slug not in taken:
            return slug
    raise SlugTaken


def _lock_region(server: DatabaseServer, region: str | None) -> None:
    """Keep the server's region until the transaction ends, for a tenant that is bound to it. Raises WrongRegion."""
    if region is not None:
        # Its region can have changed since it was chosen: that locks the row, and rejects where it finds a bound tenant.
        check_region(DatabaseServer.objects.select_for_update(no_key=True).get(pk=server.pk), region)


def _interrupted(slug: str) -> TenantDatabase | None:
    found = TenantDatabase.objects.select_related("tenant", "server").filter(tenant__slug__iexact=slug)
    return found.filter(status=State.PROVISIONING).first()


def _finish_interrupted(
    mapping: TenantDatabase, name: str, own: dict[str, object], initialize: Initialize | None
) -> Tenant:
    tenant = mapping.tenant
    try:
        with databases.job_lock(mapping.server, mapping.pk) as raw:
            mapping.refresh_from_db(fields=["status"])
            # Finished by another process in the meantime.
            if mapping.status != State.PROVISIONING:
                raise SlugTaken
            with transaction.atomic():
                _lock_region(mapping.server, region_of(own))
                claim(mapping.pk, before=tenant.settings, after=own)
                tenant.name, tenant.settings = name, own
                tenant.save(update_fields=["name", "settings", "updated_at"])
            _finish(raw, mapping, initialize)
    except JobRunning as running:
        raise SlugTaken from running
    return tenant


def finish_provisioning(*, tenant_id: UUID) -> Tenant:
    """Finish an interrupted provisioning, from the step it reached. Does nothing if the tenant is ready.

    Raises UnknownTenant, JobRunning; errors of the database server are not translated.
    """
    mapping = first_or(TenantDatabase.objects.select_related("tenant", "server").filter(pk=tenant_id), UnknownTenant)
    with databases.job_lock(mapping.server, tenant_id) as raw:
        mapping.refresh_from_db(fields=["status"])
        if mapping.status == State.PROVISIONING:
            _finish(raw, mapping, None)
    return mapping.tenant


def _finish(raw: databases.Raw, mapping: TenantDatabase, initialize: Initialize | None) -> None:
    warm_pool.copy(raw, mapping.server, mapping.name)
    target = DatabaseTarget.for_maintenance(mapping.server, mapping.name)
    if not is_current(target):
        # Copied before a crash, finished by newer code.
        upgrade(target)
    try:
        marks.take(mapping.server, mapping.name, mapping.pk)
    except marks.SpareUnfit as unfit:
        raise CopyFailed(f"The new database {mapping.name} is not used: {unfit}.") from unfit
    steps.completed("verified")
    with transaction.atomic():
        mapping.status, mapping.schema_version, mapping.reason = State.ACTIVE, schema_version(), ""
        mapping.save(update_fields=["status", "schema_version", "reason", "updated_at"])
        _initialize(mapping.tenant, initialize)
    steps.completed("activated")
    lookup.forget()


def _initialize(tenant: Tenant, initialize: Initialize | None) -> None:
    tenant_created.send(sender=Tenant, tenant=tenant)
    if initialize is not None:
        initialize(tenant)
    record_for_platform("tenant.created", tenant_id=tenant.pk, target=("tenant", tenant.pk))


# --- from state to state ---------------------------------------------------------------------------------------------


def change_state(tenant_id: UUID, to: State, *, reason: str = "", only_from: State | None = None) -> TenantDatabase:
    """Move a mapping to another state. Raises WrongState if the table of states does not allow it, UnknownTenant."""
    sources = [state for state, following in FOLLOWS.items() if to in following and only_from in (None, state)]
    moved = TenantDatabase.objects.filter(pk=tenant_id, status__in=sources).update(status=to, reason=reason)
    mapping = TenantDatabase.objects.select_related("tenant", "server").filter(pk=tenant_id).first()
    if mapping is None or (mapping.status == State.DELETED and to != State.DELETED):
        raise UnknownTenant
    if not moved and mapping.status != to:
        raise WrongState(f"The tenant is {mapping.status}: it cannot become {to}.")
    lookup.forget()
    return mapping


def mapping_of(tenant_id: UUID) -> TenantDatabase:
    """Return the mapping of a tenant that is not deleted. Raises UnknownTenant."""
    rows = TenantDatabase.objects.select_related("tenant", "server").exclude(status=State.DELETED)
    return first_or(rows.filter(pk=tenant_id), UnknownTenant)


def suspend_tenant(*, tenant_id: UUID, reason: str = "") -> TenantDatabase:
    """Suspend a tenant from the next request on; its data is kept. Raises UnknownTenant, WrongState.

    `reason` is in the audit event. It must hold no personal data.
    """
    mapping = change_state(tenant_id, State.SUSPENDED)
    details = {"reason": reason} if reason else {}
    record_for_platform("tenant.suspended", tenant_id=tenant_id, target=("tenant", tenant_id), details=details)
    return mapping


def resume_tenant(*, tenant_id: UUID) -> TenantDatabase:
    """Resume a suspended tenant. Raises UnknownTenant, WrongState, JobRunning.

    Rejected during a move or restore, as later writes would be missing in the copy.
    """
    mapping = mapping_of(tenant_id)
    with databases.job_lock(mapping.server, tenant_id) as raw:
        reload_mapping(mapping)
        if mapping.name in databases.read_only_names(raw):
            # An interrupted move left it read-only.
            databases.make_writable(raw, mapping.name)
        if mapping.status == State.SUSPENDED:
            tenant_resuming.send(sender=resume_tenant, tenant_id=tenant_id)
        mapping = change_state(tenant_id, State.ACTIVE, only_from=State.SUSPENDED)
    record_for_platform("tenant.resumed", tenant_id=tenant_id, target=("tenant", tenant_id))
    return mapping


def reload_mapping(mapping: TenantDatabase) -> None:
    """Read the mapping again once its lock is held: another job may have ended since it was read.

    Raises JobRunning if the tenant has moved to another server.
    """
    server_id = mapping.server_id
    mapping.refresh_from_db(fields=["status", "name", "server"])
    if mapping.server_id != server_id:
        raise JobRunning


def delete_tenant(*, tenant_id: UUID, final_backup: bool = True) -> Deletion:
    """Drop a tenant's database and its rows in the global database, except for an anonymous tombstone.

    With `final_backup` an encrypted backup is written first and kept for DELETED_TENANT_BACKUP_DAYS, with the data key that
    decrypts it. A tenant without a readable database, or that was never active, is deleted without one. Can be run again
    after a crash at any step. Raises UnknownTenant, WrongState, JobRunning; CopyFailed or ProgramMissing if the backup
    cannot be written, and then nothing was changed.
    """
    mapping = mapping_of(tenant_id)
    # Deleting many rows can take longer than a request's statement timeout.
    with no_timeout(), databases.job_lock(mapping.server, tenant_id) as raw:
        reload_mapping(mapping)
        if mapping.status != State.DELETING:
            _begin_deletion(raw, mapping, final_backup=final_backup)
        steps.completed("deleting")
        fences.advance(mapping.server)
        databases.drop(raw, mapping.name)
        steps.completed("dropped")
        kept = final_backups.kept(tenant_id)
        with transaction.atomic():
            forget_in_global_database(tenant_id, keep_key=kept.until is not None)
            record_for_platform(
                "tenant.deleted",
                tenant_id=tenant_id,
                target=("tenant", tenant_id),
                details={"final_backup_until": kept.until.isoformat() if kept.until else None},
            )
    keys.forget()
    lookup.forget()
    return kept


def _begin_deletion(raw: databases.Raw, mapping: TenantDatabase, *, final_backup: bool) -> None:
    """Suspend the tenant, write its final backup, and only then mark it as deleting."""
    was_active = mapping.status == State.ACTIVE
    if was_active:
        change_state(mapping.pk, State.SUSPENDED)
    elif State.DELETING not in FOLLOWS[State(mapping.status)]:
        raise WrongState(f"The tenant is {mapping.status}: it cannot become {State.DELETING}.")
    wanted = final_backup and settings.DELETED_TENANT_BACKUP_DAYS and mapping.status != State.PROVISIONING
    if not wanted or not databases.exists(raw, mapping.name):
        change_state(mapping.pk, State.DELETING)
        return
    try:
        # Running requests could still write data that the backup would miss.
        databases.make_read_only(raw, mapping.name)
        # If it is restored later, older backups of it can be restored again.
        revocations.deliver_read_only(mapping.pk, DatabaseTarget.for_maintenance(mapping.server, mapping.name))
        file, begun_at = final_backups.write(mapping)
        with transaction.atomic():
            final_backups.keep(mapping.pk, file, begun_at)
            change_state(mapping.pk, State.DELETING)
    except BaseException:
        # Also after Ctrl-C.
        databases.make_writable(raw, mapping.name)
        if was_active:
            change_state(mapping.pk, State.ACTIVE, only_from=State.SUSPENDED)
        raise
    steps.completed("backed up")


def forget_in_global_database(tenant_id: UUID, *, keep_key: bool) -> None:
    """Delete a tenant's rows in the global database except the tombstone, in the caller's transaction."""
    tenant = Tenant.objects.get(pk=tenant_id)
    for relation in Tenant._meta.related_objects:
        # A tenant that can be restored keeps its slugs.
        is_reserved_slug = relation.related_model is FormerSlug and keep_key
        if relation.related_model not in (TenantDatabase, FinalBackup) and not is_reserved_slug:
            rows = relation.related_model._base_manager.filter(**{relation.field.name: tenant})
            # In batches: the cascade passes keys as parameters, of which a statement takes 65,535.
            while some := list(rows.values_list("pk", flat=True)[:10_000]):
                rows.filter(pk__in=some).delete()
    tenant_forgotten.send(sender=forget_in_global_database, tenant_id=tenant_id)
    # Without the data key no backup can be decrypted. A final backup keeps the key until it expires.
    if not keep_key:
        DataKey.objects.filter(owner=str(tenant_id)).delete()
    # The audit trail was dropped with the database.
    ChainHead.objects.filter(owner=str(tenant_id)).delete()
    if keep_key and tenant.slug != f"deleted-{tenant_id}":
        former_slugs.reserve(tenant_id, tenant.slug)
    # Removes the customer's name, and frees the slug unless it is reserved.
    Tenant.objects.filter(pk=tenant_id).update(slug=f"deleted-{tenant_id}", name="deleted", settings={})
    TenantDatabase.objects.filter(pk=tenant_id).update(status=State.DELETED, reason="")


def _undo(raw: databases.Raw, mapping: TenantDatabase) -> None:
    """Remove a tenant that has never been active."""
    databases.drop(raw, mapping.name)
    with transaction.atomic():
        DataKey.objects.filter(owner=str(mapping.pk)).delete()
        Tenant.objects.filter(pk=mapping.pk).delete()

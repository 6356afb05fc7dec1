"""A tenant's database from the promise to the tombstone. Every job can be killed anywhere and run again.

The mapping row comes first: it is the promise that the database's name belongs to the tenant. A database is copied from
a migrated template (STRATEGY wal_log), or claimed from the warm pool of ready-made ones, and counts only when the
mapping says `active`. Whoever works on a tenant's database holds that tenant's lock (`databases.job_lock`).
"""

import re
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from identity_platform.api.errors import ApiError
from identity_platform.audit.chain import PLATFORM
from identity_platform.audit.models import ChainHead
from identity_platform.audit.writer import record_for_platform
from identity_platform.postgresql import statement_timeout
from tenants import databases, final_backups, keys, lookup, steps, warm_pool
from tenants.capacity import server_with_room
from tenants.context import Place
from tenants.errors import JobRunning, SlugTaken, UnknownTenant, WrongState
from tenants.final_backups import Deletion
from tenants.models import DatabaseServer, DataKey, FinalBackup, Tenant, TenantDatabase
from tenants.reservations import reserve
from tenants.schema import is_current, schema_version, upgrade
from tenants.slugs import slug_of
from tenants.states import FOLLOWS, State
from tenants.webauthn_claims import claim

Furnish = Callable[[Tenant], None]
# What a tenant gets, in the transaction that makes it active, when its maker does not say (a repair, for one): apps
# above this one put it here.
standard_furniture: list[Furnish] = []


_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_reserved(slug: str) -> bool:
    """Whether commands take it for something else: for the platform's own trail, or for a tenant's id."""
    return slug == PLATFORM or _ID.fullmatch(slug) is not None


# --- making ----------------------------------------------------------------------------------------------------------


def create_tenant(
    *,
    name: str,
    slug: str | None = None,
    tenant_settings: dict[str, Any] | None = None,
    server: str | None = None,
    furnish: Furnish | None = None,
) -> Tenant:
    """Make a tenant with a database of its own, ready when this returns.

    Takes the name, optionally a slug (made from the name else), settings and the server's name. `furnish` puts into the
    same transaction what must exist with the tenant (its default client, its first admin). A tenant of this slug whose
    making was interrupted is finished, under the name and settings that are given now. Raises SlugTaken,
    NoRoom, RelyingPartyTaken; the database server's errors come as they are.
    """
    stated = slug is not None
    slug = slug or slug_of(name)
    if stated and (begun := _begun(slug)) is not None:
        return _finish_begun(begun, name, tenant_settings or {}, furnish)
    chosen = server_with_room(server)
    with ExitStack() as job:
        with transaction.atomic():
            tenant = _reserved(chosen, name, slug, stated, tenant_settings or {})
            claim(tenant.pk, before={}, after=tenant.settings)
            mapping = tenant.database
            if mapping.status == State.ACTIVE:
                _furnish(tenant, furnish)
                return tenant
            # Before anybody can see the row: who finds it unlocked may take it for one that was left behind.
            raw = job.enter_context(databases.job_lock(chosen, tenant.pk))
        steps.completed("mapped")
        try:
            _finish(raw, mapping, furnish)
        except ApiError:
            # Rejected (the admin's name is taken), not interrupted: nothing of it stays.
            _undo(raw, mapping)
            raise
    return tenant


def _reserved(server: DatabaseServer, name: str, slug: str, stated: bool, tenant_settings: dict[str, Any]) -> Tenant:
    # Only a slug that we made ourselves may be varied.
    made = [] if stated else [f"{slug[:45]}-{secrets.token_hex(2)}" for _ in range(7)]
    variants = made if made and is_reserved(slug) else [slug, *made]
    for candidate in variants:
        tenant = reserve(server, name=name, slug=candidate, tenant_settings=tenant_settings)
        if tenant is not None:
            return tenant
    raise SlugTaken


def _begun(slug: str) -> TenantDatabase | None:
    found = TenantDatabase.objects.select_related("tenant", "server").filter(tenant__slug__iexact=slug)
    return found.filter(status=State.PROVISIONING).first()


def _finish_begun(begun: TenantDatabase, name: str, tenant_settings: dict[str, Any], furnish: Furnish | None) -> Tenant:
    try:
        with databases.job_lock(begun.server, begun.pk) as raw:
            begun.refresh_from_db()
            # Not left behind, but made by somebody else in the meantime.
            if begun.status != State.PROVISIONING:
                raise SlugTaken
            with transaction.atomic():
                claim(begun.pk, before=begun.tenant.settings, after=tenant_settings)
                begun.tenant.name, begun.tenant.settings = name, tenant_settings
                begun.tenant.save(update_fields=["name", "settings", "updated_at"])
            _finish(raw, begun, furnish)
    except JobRunning as running:
        raise SlugTaken from running
    return begun.tenant


def finish_provisioning(*, tenant_id: UUID, furnish: Furnish | None = None) -> Tenant:
    """Go on with a tenant that is not active yet, from whatever step it reached; harmless when it is done.

    Raises UnknownTenant, JobRunning; the database server's errors come as they are.
    """
    mapping = TenantDatabase.objects.select_related("tenant", "server").filter(pk=tenant_id).first()
    if mapping is None:
        raise UnknownTenant
    with databases.job_lock(mapping.server, tenant_id) as raw:
        mapping.refresh_from_db()
        if mapping.status == State.PROVISIONING:
            _finish(raw, mapping, furnish)
    return mapping.tenant


def _finish(raw: databases.Raw, mapping: TenantDatabase, furnish: Furnish | None) -> None:
    server, tenant = mapping.server, mapping.tenant
    warm_pool.copy(raw, server, mapping.name)
    place = Place(server.pk, server.revision, mapping.name, direct=True)
    if not is_current(place):
        # Copied before a crash, finished by newer code.
        upgrade(place)
    steps.completed("verified")
    with transaction.atomic():
        TenantDatabase.objects.filter(pk=mapping.pk).update(
            status=State.ACTIVE, schema_version=schema_version(), reason=""
        )
        _furnish(tenant, furnish)
    steps.completed("activated")
    mapping.refresh_from_db(fields=["status", "schema_version", "reason"])
    tenant.database = mapping
    lookup.forget()


def _furnish(tenant: Tenant, furnish: Furnish | None) -> None:
    for put in [furnish] if furnish is not None else standard_furniture:
        put(tenant)
    record_for_platform("tenant.created", tenant_id=tenant.pk, target=("tenant", tenant.pk))


# --- from state to state ---------------------------------------------------------------------------------------------


def change_state(tenant_id: UUID, to: State, *, reason: str = "", only_from: State | None = None) -> TenantDatabase:
    """Move a mapping to another state if the table of states allows it; WrongState if not, UnknownTenant if unknown."""
    sources = [state for state, following in FOLLOWS.items() if to in following and only_from in (None, state)]
    moved = TenantDatabase.objects.filter(pk=tenant_id, status__in=sources).update(status=to, reason=reason)
    mapping = TenantDatabase.objects.select_related("tenant", "server").filter(pk=tenant_id).first()
    if mapping is None or (mapping.status == State.DELETED and to != State.DELETED):
        raise UnknownTenant
    if not moved and mapping.status != to:
        raise WrongState(f"The tenant is {mapping.status}: it cannot become {to}.")
    lookup.forget()
    return mapping


def suspend_tenant(*, tenant_id: UUID) -> TenantDatabase:
    """Switch a tenant off from the next request on; its data is kept. Raises UnknownTenant, WrongState."""
    mapping = change_state(tenant_id, State.SUSPENDED)
    record_for_platform("tenant.suspended", tenant_id=tenant_id, target=("tenant", tenant_id))
    return mapping


def resume_tenant(*, tenant_id: UUID) -> TenantDatabase:
    """Switch a suspended tenant on again. Raises UnknownTenant, WrongState, JobRunning.

    Not while it is moved or restored: what its people would write is not in the copy.
    """
    mapping = TenantDatabase.objects.select_related("server").filter(pk=tenant_id).first()
    if mapping is None or mapping.status == State.DELETED:
        raise UnknownTenant
    with databases.job_lock(mapping.server, tenant_id) as raw:
        reload_mapping(mapping)
        if mapping.name in databases.read_only_names(raw):
            # By a move that was killed.
            databases.make_writable(raw, mapping.name)
        mapping = change_state(tenant_id, State.ACTIVE, only_from=State.SUSPENDED)
    record_for_platform("tenant.resumed", tenant_id=tenant_id, target=("tenant", tenant_id))
    return mapping


def reload_mapping(mapping: TenantDatabase) -> None:
    """Read the mapping anew, once its lock is held and no other job is at it: one may have ended since it was read.

    JobRunning if it has left the server that we are on.
    """
    looked_at = mapping.server_id
    mapping.refresh_from_db(fields=["status", "name", "server"])
    if mapping.server_id != looked_at:
        raise JobRunning


def delete_tenant(*, tenant_id: UUID, final_backup: bool = True) -> Deletion:
    """Drop a tenant's database and all that the global database holds of it; the row stays as a tombstone.

    With `final_backup` an encrypted backup is written first and kept for DELETED_TENANT_BACKUP_DAYS, together with the
    data key that opens it. A tenant whose database is missing or invalid, or that was never active, is deleted without
    one. Can be run again after a crash at any step. Raises UnknownTenant, WrongState, JobRunning; CopyFailed or
    ProgramMissing if the backup cannot be written, and then everything is as it was.
    """
    mapping = TenantDatabase.objects.select_related("tenant", "server").filter(pk=tenant_id).first()
    if mapping is None or mapping.status == State.DELETED:
        raise UnknownTenant
    # All its services and people's admins at once may take longer than a request's statements.
    with statement_timeout.no_timeout(), databases.job_lock(mapping.server, tenant_id) as raw:
        reload_mapping(mapping)
        if mapping.status != State.DELETING:
            _begin_deletion(raw, mapping, final_backup=final_backup)
        steps.completed("deleting")
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
    keys.forget(str(tenant_id))
    lookup.forget()
    return kept


def _begin_deletion(raw: databases.Raw, mapping: TenantDatabase, *, final_backup: bool) -> None:
    """Shut the tenant, write its final backup, and only then let its database be dropped."""
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
        # Requests that were let in before may still write what would be in no backup.
        databases.make_read_only(raw, mapping.name)
        file = final_backups.write(mapping)
        with transaction.atomic():
            final_backups.keep(mapping.pk, file)
            change_state(mapping.pk, State.DELETING)
    except BaseException:
        # Also after Ctrl-C.
        databases.make_writable(raw, mapping.name)
        if was_active:
            change_state(mapping.pk, State.ACTIVE, only_from=State.SUSPENDED)
        raise
    steps.completed("backed up")


def forget_in_global_database(tenant_id: UUID, *, keep_key: bool) -> None:
    """Delete what the global database holds of a tenant but its tombstone, in the caller's transaction."""
    tenant = Tenant.objects.get(pk=tenant_id)
    for relation in Tenant._meta.related_objects:
        if relation.related_model not in (TenantDatabase, FinalBackup):
            rows = relation.related_model._base_manager.filter(**{relation.field.name: tenant})
            # What hangs on them is found by their keys: more would not fit into one statement (65,535 parameters).
            while some := list(rows.values_list("pk", flat=True)[:10_000]):
                rows.filter(pk__in=some).delete()
    # Without its data key whatever is left in a backup stays closed. A final backup keeps the key until it expires.
    if not keep_key:
        DataKey.objects.filter(owner=str(tenant_id)).delete()
    # The trail is gone with its database, and without the key no link of it can be verified.
    ChainHead.objects.filter(owner=str(tenant_id)).delete()
    # The slug becomes free; the name of a customer is not kept.
    Tenant.objects.filter(pk=tenant_id).update(slug=f"deleted-{tenant_id}", name="deleted", settings={})
    TenantDatabase.objects.filter(pk=tenant_id).update(status=State.DELETED, reason="")


def _undo(raw: databases.Raw, mapping: TenantDatabase) -> None:
    """Take back a tenant that has never been active."""
    databases.drop(raw, mapping.name)
    with transaction.atomic():
        DataKey.objects.filter(owner=str(mapping.pk)).delete()
        Tenant.objects.filter(pk=mapping.pk).delete()

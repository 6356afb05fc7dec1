"""From state to state: a tenant's rows in the global database."""

from uuid import UUID

from identity_platform.audit.models import ChainHead
from identity_platform.postgresql.row_errors import first_or
from tenants.addresses import former_slugs
from tenants.entering import lookup
from tenants.errors import JobRunning, UnknownTenant, WrongState
from tenants.models import DataKey, FinalBackup, FormerSlug, Tenant, TenantDatabase
from tenants.records.tenant_records import changing_tenant
from tenants.signals import tenant_forgotten
from tenants.states import FOLLOWS, State


def change_state(
    tenant_id: UUID,
    to: State,
    *,
    reason: str = "",
    only_from: State | None = None,
    by_job: bool = False,
    may_lag: bool = False,
) -> TenantDatabase:
    """Move a mapping to another state. Raises WrongState if the table of states does not allow it, UnknownTenant.

    The state is written into the tenant's database too, if it is there or not `may_lag`. A job that holds the tenant's lock can
    do so in a paused tenant as well, and does not fail where it cannot.
    """
    sources = [state for state, following in FOLLOWS.items() if to in following and only_from in (None, state)]
    with changing_tenant(tenant_id, direct=by_job, may_lag=by_job or may_lag):
        moved = TenantDatabase.objects.filter(pk=tenant_id, status__in=sources).update(status=to, reason=reason)
        mapping = TenantDatabase.objects.select_related("tenant", "server").get(pk=tenant_id)
        if not moved and mapping.status != to:
            raise WrongState(f"The tenant is {mapping.status}: it cannot become {to}.")
        lookup.forget()
    return mapping


def mapping_of(tenant_id: UUID) -> TenantDatabase:
    """Return the mapping of a tenant that is not deleted. Raises UnknownTenant."""
    rows = TenantDatabase.objects.select_related("tenant", "server").exclude(status=State.DELETED)
    return first_or(rows.filter(pk=tenant_id), UnknownTenant)


def reload_mapping(mapping: TenantDatabase) -> None:
    """Read the mapping again once its lock is held: another job may have ended since it was read.

    Raises JobRunning if the tenant has moved to another server.
    """
    server_id = mapping.server_id
    mapping.refresh_from_db(fields=["status", "name", "server"])
    if mapping.server_id != server_id:
        raise JobRunning


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

"""Change rows of the global database as nothing of the platform would, with the copies in the tenant's database."""

from typing import Any
from uuid import UUID

from tenants.entering import lookup
from tenants.models import Tenant, TenantDatabase
from tenants.records import reconciling
from userflow.accounts.models import Client


def change_tenant(tenant_id: Any, **columns: Any) -> int:
    """Set columns of a tenant; return 1, or 0 if there is none."""
    return _copied(tenant_id, Tenant.objects.filter(pk=tenant_id).update(**columns))


def change_mapping(tenant_id: Any, **columns: Any) -> int:
    """Set columns of a tenant's mapping, such as its status."""
    return _copied(tenant_id, TenantDatabase.objects.filter(pk=tenant_id).update(**columns))


def change_client(client_id: Any, **columns: Any) -> int:
    """Set columns of a client."""
    changed = Client.objects.filter(pk=client_id).update(**columns)
    return _copied(Client.objects.values_list("tenant_id", flat=True).get(pk=client_id), changed) if changed else 0


def _copied(tenant_id: UUID, changed: int) -> int:
    if changed:
        reconciling.apply_all(tenant_id, direct=True)
        lookup.forget()
    return changed

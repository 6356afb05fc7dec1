"""Change rows of the global database as nothing of the platform would, with the copies in the tenant's database."""

from typing import Any
from uuid import UUID

from tenants import operating_modes
from tenants.entering import lookup
from tenants.models import Tenant, TenantDatabase
from tenants.records import reconciling
from tenants.records.projections import WITHOUT_DATABASE
from userflow.accounts.models import Client


def change_tenant(tenant_id: Any, **columns: Any) -> int:
    """Set columns of a tenant; return 1, or 0 if there is none."""
    return _copied(tenant_id, Tenant.objects.filter(pk=tenant_id).update(**columns))


def change_mapping(tenant_id: Any, **columns: Any) -> int:
    """Set columns of a tenant's mapping, such as its status. One without a database in use gets no record of that."""
    lags = columns.get("status") in WITHOUT_DATABASE
    return _copied(tenant_id, TenantDatabase.objects.filter(pk=tenant_id).update(**columns, copies_lag=lags))


def change_client(client_id: Any, **columns: Any) -> int:
    """Set columns of a client."""
    changed = Client.objects.filter(pk=client_id).update(**columns)
    return _copied(Client.objects.values_list("tenant_id", flat=True).get(pk=client_id), changed) if changed else 0


def _copied(tenant_id: UUID, changed: int) -> int:
    if changed and not TenantDatabase.objects.filter(pk=tenant_id, status__in=WITHOUT_DATABASE).exists():
        reconciling.apply_all(tenant_id, direct=True)
    operating_modes.forget()
    lookup.forget()
    return changed


def create_client(**columns: Any) -> Client:
    """Create a client."""
    client = Client.objects.create(**columns)
    _copied(client.tenant_id, 1)
    return client

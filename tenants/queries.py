"""Tenants as commands name and show them."""

from typing import Any

from tenants.errors import UnknownTenant
from tenants.models import Tenant, TenantDatabase
from tenants.schema import schema_version
from tenants.states import State


def tenant_named(slug: str) -> Tenant:
    """The tenant of this slug with its database, in whatever state; UnknownTenant if there is none."""
    tenant = Tenant.objects.select_related("database__server").filter(slug__iexact=slug).first()
    if tenant is None or tenant.database.status == State.DELETED:
        raise UnknownTenant(f"No tenant has the slug {slug}: `list_tenants` shows them all.")
    return tenant


def listed(*, status: str | None = None) -> list[dict[str, Any]]:
    """All tenants that are not deleted, by slug, as flat records: one statement."""
    found = TenantDatabase.objects.exclude(status=State.DELETED).order_by("tenant__slug")
    if status is not None:
        found = found.filter(status=status)
    columns = (
        "tenant_id",
        "tenant__slug",
        "tenant__name",
        "status",
        "server__name",
        "name",
        "schema_version",
        "reason",
    )
    return [
        {
            "slug": slug,
            "tenant_id": str(tenant_id),
            "name": name,
            "status": str(state),
            "server": server,
            "database": database,
            "schema_version": version,
            "current": version == schema_version(),
            "reason": reason,
        }
        for tenant_id, slug, name, state, server, database, version, reason in found.values_list(*columns)
    ]

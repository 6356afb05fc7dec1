"""The authorities of a tenant, set as its admins do."""

from tests.world import TestTenant


def trust(tenant: TestTenant, pem: str | None) -> None:
    """Set the authorities that calls of the tenant trust; None for none."""
    response = tenant.api.patch(
        f"/uflow/admin/tenants/{tenant.id}/settings", {"settings": {"outbound_authorities": pem}}
    )
    assert response.status_code == 200, response.content

"""The tenant of a request at the hosted pages and the OpenID endpoints: its host or its path names it."""

from django.http import HttpRequest

from openid.errors import TenantMoved
from tenants import lookup
from tenants.hosts import is_at_former_domain, tenant_at_host
from tenants.lookup import TenantContext


def tenant_of_request(request: HttpRequest) -> TenantContext:
    """Return the tenant that the address of a request names: by its sign-in domain, else by the slug in `/t/{slug}/…`.

    The state of the tenant is not checked: entering it does. Raises UnknownTenant, and TenantMoved for the slug of a tenant
    with a sign-in domain and for a domain that is not the sign-in domain any more: a tenant has one address at a time.
    """
    if (tenant := tenant_at_host(request)) is not None:
        if is_at_former_domain(request):
            raise TenantMoved(tenant.root)
        return tenant
    match = request.resolver_match
    tenant = lookup.find_by_slug(match.kwargs["slug"] if match else "")
    if tenant.sign_in_domain:
        raise TenantMoved(tenant.root)
    return tenant

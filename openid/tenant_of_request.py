"""The tenant of a request at the hosted pages and the OpenID endpoints, which name it in their address."""

from django.http import HttpRequest

from tenants import lookup
from tenants.lookup import TenantContext


def tenant_of_request(request: HttpRequest) -> TenantContext:
    """Return the tenant that the address of a request names: by the slug in the path, `/t/{slug}/…`.

    The state of the tenant is not checked: entering it does. Raises UnknownTenant.
    """
    match = request.resolver_match
    return lookup.find_by_slug(match.kwargs["slug"] if match else "")

"""The tenant of a request at the hosted pages and the OpenID endpoints: its host or its path names it."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.http import HttpRequest
from rest_framework.exceptions import APIException

from identity_platform.api.errors import ApiError
from openid.errors import TenantMoved
from tenants.addresses.hosts import is_at_former_domain, tenant_at_host
from tenants.entering import lookup
from tenants.entering.lookup import TenantContext


def tenant_of_request(request: HttpRequest) -> TenantContext:
    """Return the tenant that the address of a request names: by its sign-in domain, else by the slug in `/t/{slug}/…`.

    The state of the tenant is not checked: entering it does. Raises UnknownTenant, and TenantMoved for the slug of a tenant
    with a sign-in domain, for a former slug, and for a domain that is not the sign-in domain any more: a tenant has one
    address at a time.
    """
    if (tenant := tenant_at_host(request)) is not None:
        if is_at_former_domain(request):
            raise TenantMoved(tenant.root)
        return tenant
    match = request.resolver_match
    slug = match.kwargs["slug"] if match else ""
    tenant = lookup.find_by_slug(slug)
    if tenant.sign_in_domain or slug.lower() != tenant.slug.lower():
        raise TenantMoved(tenant.root)
    return tenant


def tenant_of_keys(request: HttpRequest) -> TenantContext:
    """Return the tenant whose keys are at the address of a request: also at the address of a former slug.

    Tokens of that issuer that have not expired can still be verified. The slug is reserved to the tenant, so no other
    tenant's keys are ever there. Raises UnknownTenant, TenantMoved.
    """
    try:
        return tenant_of_request(request)
    except TenantMoved:
        match = request.resolver_match
        slug = match.kwargs["slug"] if match else ""
        if tenant_at_host(request) is None and (tenant := lookup.find_by_slug(slug)).slug.lower() != slug.lower():
            return tenant
        raise


@contextmanager
def address_first(request: HttpRequest) -> Iterator[None]:
    """Raise UnknownTenant or TenantMoved rather than another error of the block: a wrong address is the first error.

    For a block that reads the tenant in another way, so that it is not read by its address too. It then asks
    `is_address_of`.
    """
    try:
        yield
    except (ApiError, APIException):
        tenant_of_request(request)
        raise


def is_address_of(request: HttpRequest, tenant: TenantContext) -> bool:
    """Return whether the address of a request is the one of this tenant: `tenant_of_request` would return it."""
    if (at_host := tenant_at_host(request)) is not None:
        return at_host.tenant_id == tenant.tenant_id and not is_at_former_domain(request)
    match = request.resolver_match
    slug: str = match.kwargs["slug"] if match else ""
    return slug.lower() == tenant.slug.lower() and not tenant.sign_in_domain

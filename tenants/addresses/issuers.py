"""The issuer of a tenant's tokens (OpenID Connect Core section 2, RFC 9068 section 2.2)."""

from django.conf import settings

from tenants.entering.lookup import TenantContext
from tenants.settings.page_addresses import origin_of


def issuer_of(tenant: TenantContext | None) -> str:
    """Return the issuer of the tenant's tokens, or without a tenant that of operators and tenant admins.

    A tenant has one issuer at a time: with a sign-in domain that is the domain alone.
    """
    if tenant is None:
        return str(settings.TOKEN_ISSUER)
    return origin_of(tenant.sign_in_domain) if tenant.sign_in_domain else issuer_at(tenant.slug)


def issuer_at(slug: str) -> str:
    """Return the issuer of the tokens of the tenant with this slug and without a sign-in domain."""
    return f"{settings.TOKEN_ISSUER}/t/{slug}"

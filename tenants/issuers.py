"""The issuer of a tenant's tokens (OpenID Connect Core section 2, RFC 9068 section 2.2)."""

from django.conf import settings

from tenants.lookup import TenantContext


def issuer_of(tenant: TenantContext | None) -> str:
    """Return the issuer of the tenant's tokens, or without a tenant that of operators and tenant admins."""
    return issuer_at(tenant.slug) if tenant else str(settings.TOKEN_ISSUER)


def issuer_at(slug: str) -> str:
    """Return the issuer of the tokens of the tenant with this slug."""
    return f"{settings.TOKEN_ISSUER}/t/{slug}"

"""The audience of tokens of clients without audiences: the userinfo endpoint of their tenant."""

import re
from collections.abc import Iterable

from django.conf import settings

from tenants.addresses.issuers import issuer_at, issuer_of
from tenants.entering.lookup import TenantContext


def stored_userinfo(tenant: TenantContext) -> str:
    """Return the address that sessions store: the one at the platform, which a change of the sign-in domain leaves valid."""
    return f"{issuer_at(tenant.slug)}/userinfo"


def is_userinfo(audience: str, tenant: TenantContext) -> bool:
    """Return whether an audience is the tenant's userinfo endpoint, at the platform also with a former slug.

    The same path on another host belongs to an API that the client has to be allowed to use.
    """
    if not audience.endswith("/userinfo"):
        return False
    return audience == f"{issuer_of(tenant)}/userinfo" or bool(
        re.fullmatch(rf"{re.escape(settings.TOKEN_ISSUER)}/t/[^/]+/userinfo", audience)
    )


def present_audiences(audiences: Iterable[str], tenant: TenantContext) -> tuple[str, ...]:
    """Return the audiences of a session as its tokens have them: the userinfo endpoint at the issuer in force."""
    return tuple(f"{issuer_of(tenant)}/userinfo" if is_userinfo(name, tenant) else name for name in audiences)

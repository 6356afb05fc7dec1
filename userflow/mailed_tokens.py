"""Tokens in mails, with the database to look them up in: `<tenant id or p>.<256 random bits>`.

Without it, every tenant's database would have to be searched. The stored hash covers the whole token, so a token is unknown
in any other tenant.
"""

import re
from base64 import urlsafe_b64encode
from uuid import UUID

from identity_platform.crypto import new_token

_FORM = re.compile(r"(p|[0-9a-f]{32})\.[A-Za-z0-9_-]{43}")
_PLATFORM = "p"


class NotAToken(ValueError):
    """The text does not have the form of a mailed token."""


def placed_token(tenant_id: UUID | None) -> str:
    """Return a new token for a row in the tenant's database, or in the global one without a tenant."""
    return f"{tenant_id.hex if tenant_id else _PLATFORM}.{new_token()}"


def derived_token(tenant_id: UUID, digest: bytes) -> str:
    """Return the token for a row in the tenant's database whose secret is this digest of 256 bits."""
    return f"{tenant_id.hex}.{urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def is_of_tenant(token: str, tenant_id: UUID) -> bool:
    """Return whether a mailed token is one of this tenant: the form of another tenant's page takes no other."""
    try:
        return place_of(token) == tenant_id
    except NotAToken:
        return False


def place_of(token: str) -> UUID | None:
    """Return the tenant of a token; None is the global database. Raises NotAToken."""
    if _FORM.fullmatch(token) is None:
        raise NotAToken
    prefix = token.partition(".")[0]
    return None if prefix == _PLATFORM else UUID(prefix)

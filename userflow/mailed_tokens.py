"""Tokens that travel by mail and say in which database they are to be looked up: `<tenant id or p>.<256 random bits>`.

Without the place every tenant's database would have to be searched. The stored hash covers the place too, so a token
that is carried to another tenant is an unknown one there.
"""

import re
from uuid import UUID

from identity_platform.crypto import new_token

_FORM = re.compile(r"(p|[0-9a-f]{32})\.[A-Za-z0-9_-]{43}")
_PLATFORM = "p"


class NotAToken(ValueError):
    """Of another form than the tokens we mail."""


def placed_token(tenant_id: UUID | None) -> str:
    """A new token of something in the tenant's database, or without a tenant in the global one."""
    return f"{tenant_id.hex if tenant_id else _PLATFORM}.{new_token()}"


def place_of(token: str) -> UUID | None:
    """The tenant whose database to look in; None is the global one. Raises NotAToken."""
    if _FORM.fullmatch(token) is None:
        raise NotAToken
    place = token.partition(".")[0]
    return None if place == _PLATFORM else UUID(place)

"""Refresh tokens: opaque strings that name the database of their session and carry 256 random bits.

They are not JWTs, so no verifier of access tokens accepts one (RFC 9700 section 2.2.2). Only the
SHA-256 of the whole string is stored.
"""

import re
from dataclasses import dataclass
from uuid import UUID

from identity_platform.crypto import hash_token, new_token
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.sessions.token_classes import InvalidToken

# Of an admin user, or of an end user of the tenant with the id in the token.
_FORM = re.compile(r"rt_(?:admin|([0-9a-f]{32}))_[A-Za-z0-9_-]{43}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PresentedRefreshToken:
    """The content of a refresh token: where its session is stored, and under which digest."""

    realm: Realm
    tenant_id: UUID | None
    digest: bytes


def new_refresh_token(realm: Realm, tenant_id: UUID | None) -> str:
    """Return a refresh token for a session of this realm; `tenant_id` is the tenant whose database holds it."""
    home = realm.home(tenant_id)
    return f"rt_{home.hex if home else 'admin'}_{new_token()}"


def parse_refresh_token(token: str) -> PresentedRefreshToken:
    """Return where the session of a refresh token is. Raises InvalidToken for any other string."""
    form = _FORM.fullmatch(token)
    if form is None:
        raise InvalidToken
    tenant = form[1]
    realm = END_USERS if tenant else ADMINS
    return PresentedRefreshToken(realm, UUID(hex=tenant) if tenant else None, hash_token(token))

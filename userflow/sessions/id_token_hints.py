"""ID tokens as hints about a session (OpenID Connect Core section 3.1.2.1, RP-Initiated Logout section 2)."""

from dataclasses import dataclass
from uuid import UUID

import jwt

from tenants.issuers import issuer_of
from tenants.lookup import TenantContext
from userflow.ids import FORM
from userflow.sessions import signing


@dataclass(frozen=True, slots=True)
class Hint:
    """What an ID token of the tenant says about its session."""

    client_id: UUID
    user_id: UUID
    session_id: UUID


def read_hint(tenant: TenantContext, token: str) -> Hint | None:
    """Return what an ID token says that this tenant has issued, also an expired one; None for any other string."""
    try:
        header = jwt.get_unverified_header(token)
        if header.get("typ") != "JWT":
            return None
        verifier = signing.verifier(tenant.tenant_id, header["kid"])
        if verifier is None:
            return None
        claims = jwt.decode(
            token,
            verifier.key,
            algorithms=[verifier.algorithm],
            issuer=issuer_of(tenant),
            options={"verify_aud": False, "verify_exp": False, "require": ["iss", "sub", "aud", "sid", "exp"]},
        )
    except (jwt.InvalidTokenError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    ids = [claims[name] for name in ("aud", "sub", "sid")]
    if not all(isinstance(value, str) and FORM.fullmatch(value) for value in ids):
        return None
    client_id, user_id, session_id = (UUID(value) for value in ids)
    return Hint(client_id, user_id, session_id)

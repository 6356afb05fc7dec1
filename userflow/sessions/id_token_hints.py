"""ID tokens as hints about a session (OpenID Connect Core section 3.1.2.1, RP-Initiated Logout section 2)."""

from dataclasses import dataclass
from uuid import UUID

import jwt

from tenants.lookup import TenantContext
from userflow.ids import FORM
from userflow.sessions import signing


@dataclass(frozen=True, slots=True)
class Hint:
    """What an ID token of the tenant says about its session."""

    client_id: UUID
    user_id: UUID
    session_id: UUID


@dataclass(frozen=True, slots=True)
class UnverifiedHint:
    """What a token says whose key the tenant does not have (any more). Anyone can write one: it proves nothing."""

    client_id: UUID
    user_id: UUID


def read_hint(tenant: TenantContext, token: str) -> Hint | UnverifiedHint | None:
    """Return what an ID token says that this tenant has issued, also an expired one; None for any other string.

    Keys verify for a day after they are replaced, sessions last for months: a token with an unknown key is an UnverifiedHint.
    The issuer may be a former one: a key of the tenant proves more than its present address.
    """
    try:
        header = jwt.get_unverified_header(token)
        if header.get("typ") != "JWT":
            return None
        verifier = signing.verifier(tenant.tenant_id, header["kid"])
        claims = jwt.decode(
            token,
            verifier.key if verifier else "",
            algorithms=[verifier.algorithm] if verifier else [],
            options={
                "verify_signature": verifier is not None,
                "verify_aud": False,
                "verify_exp": False,
                "require": ["iss", "sub", "aud", "sid", "exp"],
            },
        )
        ids = [claims[name] for name in ("aud", "sub", "sid")]
    except (jwt.InvalidTokenError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    if not all(isinstance(value, str) and FORM.fullmatch(value) for value in ids):
        return None
    client_id, user_id, session_id = (UUID(value) for value in ids)
    return UnverifiedHint(client_id, user_id) if verifier is None else Hint(client_id, user_id, session_id)

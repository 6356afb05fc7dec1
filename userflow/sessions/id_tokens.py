"""What applications get signed: ID tokens, logout tokens and authorization responses. Their claims are written here only."""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import jwt
from django.utils.timezone import now

from tenants.addresses.issuers import issuer_of
from tenants.entering import lookup
from userflow.accounts.session_models import EndUserSession
from userflow.ids import FORM
from userflow.sessions import signing
from userflow.sessions.key_pairs import ES256
from userflow.sessions.token_classes import read_unverified

ID_TOKEN_SECONDS: Final = 3600
# OpenID Connect Back-Channel Logout section 2.4 recommends at most two minutes.
LOGOUT_TOKEN_SECONDS: Final = 120
# JARM section 2.1 recommends at most ten minutes; the browser brings it at once.
RESPONSE_SECONDS: Final = 600
LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"


class SessionClaims(NamedTuple):
    """The claims of an application's session, which its access token and its ID token share."""

    sid: str
    sub: str
    client_id: str
    amr: list[str]
    acr: str
    auth_time: int


def claims_of_session(session: EndUserSession) -> SessionClaims:
    """Return the claims of an application's session."""
    return SessionClaims(
        str(session.pk),
        str(session.user_id),
        str(session.client_id),
        list(session.amr),
        session.acr,
        int(session.auth_time.timestamp()),
    )


def id_token(
    session: SessionClaims,
    *,
    tenant: lookup.TenantContext,
    nonce: str = "",
    access_token: str | None = None,
    algorithm: str = ES256,
    claims: Mapping[str, object] | None = None,
) -> str:
    """Return the ID token of an application's session (OpenID Connect Core sections 2 and 3.1.3.6).

    `claims` are those about the user; none of them replaces a claim of the token itself. `access_token` is the one that is
    returned together with it.
    """
    moment = int(now().timestamp())
    payload: dict[str, object] = {
        **(claims or {}),
        "iss": issuer_of(tenant),
        "sub": session.sub,
        "aud": session.client_id,
        "azp": session.client_id,
        "iat": moment,
        "exp": moment + ID_TOKEN_SECONDS,
        "auth_time": session.auth_time,
        "acr": session.acr,
        "amr": session.amr,
        "sid": session.sid,
    }
    if nonce:
        payload["nonce"] = nonce
    if access_token is not None:
        # The left half of the hash of the signature's algorithm, SHA-256 for both of ours.
        digest = hashlib.sha256(access_token.encode()).digest()
        payload["at_hash"] = base64.urlsafe_b64encode(digest[:16]).rstrip(b"=").decode()
    return _signed(payload, tenant, algorithm, header_type="JWT")


def renewed_id_token(access: str, *, tenant: lookup.TenantContext, algorithm: str, claims: Mapping[str, object]) -> str:
    """Return the ID token of a refresh (OpenID Connect Core section 12.2), for the session of its new access token.

    `claims` are those about the user. It has no nonce. The claims of the session are in the access token, which was just
    signed here.
    """
    issued: dict[str, Any] = read_unverified(access)[1]
    session = SessionClaims(**{name: issued[name] for name in SessionClaims._fields})
    return id_token(session, tenant=tenant, access_token=access, algorithm=algorithm, claims=claims)


def logout_token(
    *, tenant: lookup.TenantContext, client_id: UUID, user_id: UUID, session_id: UUID, algorithm: str = ES256
) -> str:
    """Return a logout token (OpenID Connect Back-Channel Logout section 2.4), signed as the client's ID tokens are."""
    moment = int(now().timestamp())
    payload: dict[str, object] = {
        "iss": issuer_of(tenant),
        "sub": str(user_id),
        "aud": str(client_id),
        "iat": moment,
        "exp": moment + LOGOUT_TOKEN_SECONDS,
        "jti": str(uuid4()),
        "events": {LOGOUT_EVENT: {}},
        "sid": str(session_id),
    }
    return _signed(payload, tenant, algorithm, header_type="logout+jwt")


def signed_response(
    parameters: Mapping[str, str], *, tenant: lookup.TenantContext, client_id: UUID, algorithm: str = ES256
) -> str:
    """Return the parameters of an authorization response as a JWT (JARM section 2.1), signed as the client's ID tokens are."""
    times = {"exp": int(now().timestamp()) + RESPONSE_SECONDS}
    payload = {**parameters, **times, "iss": issuer_of(tenant), "aud": str(client_id)}
    return _signed(payload, tenant, algorithm, header_type="JWT")


def _signed(payload: dict[str, object], tenant: lookup.TenantContext, algorithm: str, *, header_type: str) -> str:
    signer = signing.signer(tenant.tenant_id, algorithm)
    return jwt.encode(payload, signer.key, algorithm=algorithm, headers={"kid": signer.kid, "typ": header_type})


# --- ID tokens as hints about a session (OpenID Connect Core section 3.1.2.1, RP-Initiated Logout section 2) ------------


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


def read_hint(tenant: lookup.TenantContext, token: str) -> Hint | UnverifiedHint | None:
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

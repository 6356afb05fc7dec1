"""Tokens of an identity provider that a test signs."""

import base64
import hmac
import json
from typing import Any

import jwt

from tests.userflow.clients.keys import PrivateKey, key_set, new_key, public_jwk
from userflow.sessions.client_keys import ClientKey, read_key_set

ISSUER, CLIENT, NONCE, KID = "https://idp.customer.example", "client-1", "nonce-of-the-request", "first"
MOMENT = 1_700_000_000
EVENT = "http://schemas.openid.net/event/backchannel-logout"
KEY = new_key()
REMOVED: Any = object()


def keys_of(key: PrivateKey = KEY, kid: str | None = KID) -> tuple[ClientKey, ...]:
    """Return the public part of a key as the provider publishes it."""
    return read_key_set(key_set(public_jwk(key, **({"kid": kid} if kid else {}))))


def token(claims: dict[str, Any], *, key: Any = KEY, alg: str = "ES256", header: dict[str, Any] | None = None) -> str:
    """Sign claims, of which those that are REMOVED are left out."""
    payload = {name: value for name, value in claims.items() if value is not REMOVED}
    headers = {"kid": KID, **(header or {})}
    return jwt.PyJWS().encode(json.dumps(payload).encode(), key, algorithm=alg, headers=headers)


def id_claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of an ID token."""
    dates = {"iat": MOMENT, "exp": MOMENT + 300}
    return {"iss": ISSUER, "sub": "248289761001", "aud": CLIENT, **dates, "nonce": NONCE, **changes}


def logout_claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a logout token."""
    dates = {"iat": MOMENT, "exp": MOMENT + 120}
    return {"iss": ISSUER, "sub": "248289761001", "aud": CLIENT, **dates, "jti": "1", "events": {EVENT: {}}, **changes}


def segment(document: object) -> str:
    """Return a part of a token."""
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def hmac_token(claims: dict[str, Any], secret: bytes, kid: str = KID) -> str:
    """Return a token with a symmetric signature. PyJWT does not make one with a public key as its secret."""
    signed = f"{segment({'alg': 'HS256', 'kid': kid})}.{segment(claims)}"
    digest = hmac.digest(secret, signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"

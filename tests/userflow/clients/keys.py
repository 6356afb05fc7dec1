"""Keys of clients and what they sign."""

import time
from typing import Any
from uuid import uuid4

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from joserfc.jwk import ECKey, OKPKey, RSAKey

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
_JOSE: dict[type, Any] = {
    ec.EllipticCurvePrivateKey: ECKey,
    rsa.RSAPrivateKey: RSAKey,
    ed25519.Ed25519PrivateKey: OKPKey,
}


def new_key(curve: ec.EllipticCurve | None = None) -> ec.EllipticCurvePrivateKey:
    """A private key of a client."""
    return ec.generate_private_key(curve or ec.SECP256R1())


def public_jwk(key: PrivateKey, **members: Any) -> dict[str, Any]:
    """The public part as a JSON Web Key."""
    kind = next(jose for type_, jose in _JOSE.items() if isinstance(key, type_))
    return {**kind.import_key(key.public_key()).as_dict(private=False), **members}


def key_set(*keys: dict[str, Any]) -> dict[str, Any]:
    """A key set of these keys."""
    return {"keys": list(keys)}


def assertion(
    key: PrivateKey,
    client_id: str,
    audience: Any,
    *,
    headers: dict[str, Any] | None = None,
    alg: str = "ES256",
    **claims: Any,
) -> str:
    """What a client signs to authenticate (RFC 7523 section 3); a claim that is None is left out."""
    now = int(time.time())
    stated = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "jti": uuid4().hex,
        "iat": now,
        "exp": now + 60,
        **claims,
    }
    payload = {name: value for name, value in stated.items() if value is not None}
    return jwt.encode(payload, key, algorithm=alg, headers=headers)

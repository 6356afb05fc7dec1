"""Generate key pairs for signing (RFC 7518 sections 3.3 and 3.4) and compute their ids (RFC 7638)."""

import base64
import hashlib
from typing import Final, NamedTuple

import orjson
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from userflow.sessions.models import Jwk

ES256: Final = "ES256"
RS256: Final = "RS256"
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey

_THUMBPRINT_FIELDS: Final = {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n")}


class KeyPair(NamedTuple):
    """A key pair and its id; the private key is PKCS #8."""

    kid: str
    public_jwk: Jwk
    private: bytes


def new_key_pair(algorithm: str) -> KeyPair:
    """Return a new pair. An RSA key takes about 50 ms of CPU time."""
    private: PrivateKey
    if algorithm == RS256:
        private = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        jwk = RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
    else:
        private = ec.generate_private_key(ec.SECP256R1())
        jwk = ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
    # PyJWT adds `key_ops`, which RFC 7517 section 4.3 advises against beside `use`.
    public = {name: str(jwk[name]) for name in _THUMBPRINT_FIELDS[jwk["kty"]]}
    kid = thumbprint(public)
    raw = private.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(kid, {**public, "use": "sig", "alg": algorithm, "kid": kid}, raw)


def thumbprint(public: Jwk) -> str:
    """Return the thumbprint of a key (RFC 7638 section 3): SHA-256 over its required fields in lexicographic order."""
    canonical = orjson.dumps(public, option=orjson.OPT_SORT_KEYS)
    return base64.urlsafe_b64encode(hashlib.sha256(canonical).digest()).rstrip(b"=").decode()

"""What the platform signs to authenticate at identity providers of tenants: client assertions, and Apple's client secret."""

import time
from typing import Final
from uuid import uuid4

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

from userflow.sessions.client_keys import RSA_BITS
from userflow.sessions.key_pairs import ES256, PrivateKey

# A token request takes seconds. Clocks may differ by a minute, so an assertion lives for longer than that.
ASSERTION_SECONDS: Final = 120
APPLE_AUDIENCE: Final = "https://appleid.apple.com"
_RSA_ALGORITHMS: Final = ("RS256", "PS256")


class AssertionKeyInvalid(ValueError):
    """The private key cannot sign; the text says why, without the key."""


def client_assertion(
    *,
    private: bytes,
    algorithm: str,
    kid: str,
    client_id: str,
    audience: str,
    certificate_thumbprint: str = "",
    moment: float | None = None,
) -> str:
    """Return a JWT that authenticates a client (private_key_jwt, OpenID Connect Core section 9, RFC 7523 section 3).

    `private` is PKCS #8 in DER, as `new_key_pair` returns it. `certificate_thumbprint` becomes `x5t#S256`, by which Entra ID
    finds the certificate. `moment` is now unless it is given. Raises AssertionKeyInvalid.
    """
    try:
        key = load_der_private_key(private, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as problem:
        raise AssertionKeyInvalid("The private key cannot be read.") from problem
    issued_at = int(time.time() if moment is None else moment)
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "jti": str(uuid4()),
        "iat": issued_at,
        "exp": issued_at + ASSERTION_SECONDS,
    }
    header = {"kid": kid} | ({"x5t#S256": certificate_thumbprint} if certificate_thumbprint else {})
    return jwt.encode(claims, _suitable(key, algorithm), algorithm=algorithm, headers=header)


def apple_client_secret(*, private: str, key_id: str, team_id: str, client_id: str, moment: float | None = None) -> str:
    """Return the client secret for Sign in with Apple (Apple developer documentation, "Creating a client secret").

    `private` is the PEM file that Apple's developer site provides. The secret lives for minutes, not for the six months that
    Apple allows, since it is made at each use. `moment` is now unless it is given. Raises AssertionKeyInvalid.
    """
    issued_at = int(time.time() if moment is None else moment)
    claims = {
        "iss": team_id,
        "sub": client_id,
        "aud": APPLE_AUDIENCE,
        "iat": issued_at,
        "exp": issued_at + ASSERTION_SECONDS,
    }
    return jwt.encode(claims, read_apple_key(private), algorithm=ES256, headers={"kid": key_id})


def read_apple_key(private: str) -> PrivateKey:
    """Return the key of Apple's PEM file, an EC key with P-256. Raises AssertionKeyInvalid."""
    try:
        key = load_pem_private_key(private.encode("ascii"), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as problem:  # UnicodeEncodeError is a ValueError
        raise AssertionKeyInvalid(
            "Send the .p8 file of Apple, beginning with -----BEGIN PRIVATE KEY-----."
        ) from problem
    return _suitable(key, ES256)


def _suitable(key: object, algorithm: str) -> PrivateKey:
    """Return a key that may sign with this algorithm. Raises AssertionKeyInvalid."""
    if algorithm == ES256 and isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1":
        return key
    if algorithm in _RSA_ALGORITHMS and isinstance(key, rsa.RSAPrivateKey) and key.key_size >= RSA_BITS[0]:
        return key
    raise AssertionKeyInvalid("The private key does not belong to the algorithm: ES256 (P-256), RS256 or PS256.")

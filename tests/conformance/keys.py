"""RSA keys as JWKs (RFC 7518 section 6.3)."""

import base64

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

Jwk = dict[str, str]


def new_rsa_key() -> RSAPrivateKey:
    """Return a new key of 2048 bits."""
    return generate_private_key(public_exponent=65537, key_size=2048)


def public_jwk(key: RSAPrivateKey, algorithm: str, key_id: str) -> Jwk:
    """Return the public part of a key."""
    numbers = key.public_key().public_numbers()
    about = {"kty": "RSA", "use": "sig", "alg": algorithm, "kid": key_id}
    return {**about, "n": encoded(numbers.n), "e": encoded(numbers.e)}


def private_jwk(key: RSAPrivateKey, algorithm: str, key_id: str) -> Jwk:
    """Return a key with its private part."""
    numbers = key.private_numbers()
    parts = {"d": numbers.d, "p": numbers.p, "q": numbers.q, "dp": numbers.dmp1, "dq": numbers.dmq1, "qi": numbers.iqmp}
    return {**public_jwk(key, algorithm, key_id), **{name: encoded(number) for name, number in parts.items()}}


def encoded(number: int) -> str:
    """Encode a positive integer as Base64urlUInt (RFC 7518 section 2)."""
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

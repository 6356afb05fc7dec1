"""Bearer secrets: made of 256 random bits, stored only as their hash, compared in constant time."""

import hashlib
import hmac
import secrets

_TOKEN_BYTES = 32


def new_token(prefix: str = "") -> str:
    """A token of 256 random bits in base64url (43 characters) behind an optional readable prefix."""
    return prefix + secrets.token_urlsafe(_TOKEN_BYTES)


def hash_token(token: str) -> bytes:
    """SHA-256 of a token, prefix included. A plain hash is enough: 256 random bits cannot be guessed or listed."""
    # A lone surrogate in what a caller sent must end as "unknown token", not as an encoding error.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def constant_time_equal(a: str | bytes, b: str | bytes) -> bool:
    """Compare two secrets in a time that does not tell where they differ."""
    return hmac.compare_digest(_encoded(a), _encoded(b))


def _encoded(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value

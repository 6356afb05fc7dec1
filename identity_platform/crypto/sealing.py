"""Seals: secrets at rest that open only in the place they were written for (AES-256-GCM, NIST SP 800-38D)."""

import hmac
import os
from dataclasses import dataclass
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
# Names the format, the cipher and the derivation of the key at once; it is authenticated with everything else.
_SEAL_VERSION = b"\x01"
_SHORTEST_SEAL = len(_SEAL_VERSION) + NONCE_BYTES + TAG_BYTES


class SealBroken(Exception):
    """Something sealed does not open: altered, truncated, moved to another place, or under another key.

    Its message never holds the sealed bytes or the plaintext.
    """


def frame(*parts: str, version: bytes) -> bytes:
    """Join parts so that no two lists of parts give the same bytes: each stands behind its length.

    Without the lengths tenant "a", table "bc" and tenant "ab", table "c" would authenticate as one place.
    """
    framed = [version]
    for part in parts:
        encoded = part.encode()
        framed.append(len(encoded).to_bytes(4, "big"))
        framed.append(encoded)
    return b"".join(framed)


@dataclass(frozen=True, slots=True)
class SealContext:
    """The place of a sealed value. A seal copied to another row, column, table or tenant does not open there."""

    tenant: str
    table: str
    column: str
    row: str

    def __post_init__(self) -> None:
        # An empty part would let two places share a context: a row sealed before it has its id, for one.
        if not (self.tenant and self.table and self.column and self.row):
            raise ValueError("A seal needs its tenant, table, column and row.")


def seal(plaintext: bytes, *, data_key: bytes, context: SealContext) -> bytes:
    """Seal a secret for its place: version, random nonce of 96 bits, ciphertext, tag; 29 bytes more than the secret."""
    nonce = os.urandom(NONCE_BYTES)
    return _SEAL_VERSION + nonce + _cipher(data_key).encrypt(nonce, plaintext, _binding(context))


def unseal(blob: bytes | bytearray | memoryview, *, data_key: bytes, context: SealContext) -> bytes:
    """Open a seal. Raises SealBroken when it was altered, moved to another place, or sealed under another key."""
    sealed = bytes(blob)
    if len(sealed) < _SHORTEST_SEAL or sealed[:1] != _SEAL_VERSION:
        raise SealBroken(f"A seal in {context.table}.{context.column} has an unknown format.")
    try:
        return _cipher(data_key).decrypt(sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :], _binding(context))
    except InvalidTag:
        raise SealBroken(f"A seal in {context.table}.{context.column} does not open in its place.") from None


def derive_key(data_key: bytes, purpose: str) -> bytes:
    """A key of 32 bytes for one purpose (HKDF-SHA256, RFC 5869); it tells nothing about those of other purposes."""
    return _derived(data_key, "key", purpose)


def keyed_digest(value: bytes | str, *, key: bytes, purpose: str) -> bytes:
    """HMAC-SHA256 of a value that is too short to be safe as a bare hash, such as a backup code.

    ``key`` is a data key: who steals the table alone cannot try codes against it.
    """
    encoded = value.encode() if isinstance(value, str) else value
    return hmac.digest(_derived(key, "digest", purpose), encoded, "sha256")


# Opening a seal would derive its key again each time, which costs more than the cipher. What is kept is no more secret than
# the data keys that the process holds anyway.
@lru_cache(maxsize=4096)
def _derived(data_key: bytes, kind: str, purpose: str) -> bytes:
    if len(data_key) != KEY_BYTES:
        raise ValueError(f"A data key has {KEY_BYTES} bytes.")
    if not purpose:
        raise ValueError("A derived key needs a purpose.")
    # No salt: the data key is uniformly random already (RFC 5869, section 3.1).
    info = frame("identity platform", kind, purpose, version=_SEAL_VERSION)
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(data_key)


def _cipher(data_key: bytes) -> AESGCM:
    return AESGCM(_derived(data_key, "seal", "AES-256-GCM"))


def _binding(context: SealContext) -> bytes:
    return frame(context.tenant, context.table, context.column, context.row, version=_SEAL_VERSION)

"""The key ring, and the data keys wrapped by it (envelope encryption).

The ring lives outside every database, in ``ENCRYPTION_KEYS``. Each tenant, and the platform itself, has one data key
that is stored only wrapped. Rotation puts a new key in front of the ring and re-wraps the data keys: a few bytes per
tenant, while the sealed values themselves stay as they are.
"""

import base64
import binascii
import os
import re
import threading
from typing import NamedTuple, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from identity_platform.crypto.sealing import KEY_BYTES, NONCE_BYTES, TAG_BYTES, SealBroken, frame

_WRAP_VERSION = b"\x01"
_WRAPPED_BYTES = len(_WRAP_VERSION) + NONCE_BYTES + KEY_BYTES + TAG_BYTES
_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# 32 random bytes hold about 30 different values; a placeholder such as 32 zeros, or one typed by hand, holds few.
_FEWEST_DISTINCT_BYTES = 12
_HOW_TO_MAKE_ONE = (
    'Make one with: python -c "import base64, secrets; '
    "print('k1:' + base64.b64encode(secrets.token_bytes(32)).decode())\""
)


class RingKeyMissing(Exception):
    """A data key is wrapped under a ring key that ``ENCRYPTION_KEYS`` no longer holds: an operator's mistake."""


class WrappedKey(NamedTuple):
    """A data key as the database stores it."""

    key_id: str
    blob: bytes


class KeyRing:
    """The keys of ``ENCRYPTION_KEYS`` in order: the first one wraps, every one unwraps."""

    __slots__ = ("_ciphers", "primary_id")

    def __init__(self, keys: dict[str, bytes]) -> None:
        if not keys:
            raise ImproperlyConfigured(f"ENCRYPTION_KEYS is empty: give at least one id:base64. {_HOW_TO_MAKE_ONE}")
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}
        self.primary_id = next(iter(keys))

    def __repr__(self) -> str:
        return f"<KeyRing {', '.join(self._ciphers)}>"

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids in the ring, the wrapping one first."""
        return tuple(self._ciphers)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``id:base64(32 bytes),id2:…``.

        Raises ImproperlyConfigured, which says what to change and never repeats key material.
        """
        keys: dict[str, bytes] = {}
        if not isinstance(text, str) or not text.strip():
            return cls(keys)
        for position, entry in enumerate(text.split(","), start=1):
            key_id, colon, encoded = entry.strip().partition(":")
            if not colon or not _KEY_ID.fullmatch(key_id):
                # The entry is not named: without its colon the whole of it may be the key.
                raise ImproperlyConfigured(
                    f"ENCRYPTION_KEYS, entry {position}: write it as id:base64, where the id is 1 to 64 letters, "
                    f"digits, dots, dashes or underscores. {_HOW_TO_MAKE_ONE}"
                )
            if key_id in keys:
                raise ImproperlyConfigured(
                    f"ENCRYPTION_KEYS has the id {key_id!r} twice; give the new key an id that was never used before."
                )
            key = _decoded(key_id, encoded)
            if key in keys.values():
                raise ImproperlyConfigured(
                    f"ENCRYPTION_KEYS, key {key_id!r}: the same key has another id too; remove one of the two."
                )
            keys[key_id] = key
        return cls(keys)

    def wrap(self, key: bytes, *, owner: str) -> WrappedKey:
        """Wrap a data key under the first key of the ring, bound to its owner and to that key's id."""
        if len(key) != KEY_BYTES:
            raise ValueError(f"A data key has {KEY_BYTES} bytes.")
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._ciphers[self.primary_id].encrypt(nonce, bytes(key), _binding(self.primary_id, owner))
        return WrappedKey(self.primary_id, _WRAP_VERSION + nonce + sealed)

    def unwrap(self, key_id: str, blob: bytes | bytearray | memoryview, *, owner: str) -> bytes:
        """Give the data key back.

        Raises RingKeyMissing when the ring does not hold ``key_id``, SealBroken when the blob was altered, truncated
        or wrapped for another owner.
        """
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise RingKeyMissing(
                f"A data key is wrapped under the key {key_id!r}, but ENCRYPTION_KEYS holds only "
                f"{', '.join(self.ids)}. "
                f"Put that key back behind the first one, run rotate_encryption_keys, and only then remove it."
            )
        wrapped = bytes(blob)
        if len(wrapped) != _WRAPPED_BYTES or wrapped[:1] != _WRAP_VERSION:
            raise SealBroken("A wrapped data key has an unknown format.")
        try:
            return cipher.decrypt(wrapped[1 : 1 + NONCE_BYTES], wrapped[1 + NONCE_BYTES :], _binding(key_id, owner))
        except InvalidTag:
            raise SealBroken("A wrapped data key was altered, or belongs to another owner.") from None


def _decoded(key_id: str, encoded: str) -> bytes:
    try:
        key = base64.b64decode(encoded.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        # Raised without its cause, which would carry the text of the key into a log.
        raise ImproperlyConfigured(
            f"ENCRYPTION_KEYS, key {key_id!r}: not standard base64 with padding. {_HOW_TO_MAKE_ONE}"
        ) from None
    if len(key) != KEY_BYTES:
        raise ImproperlyConfigured(
            f"ENCRYPTION_KEYS, key {key_id!r}: {len(key)} bytes after decoding, but AES-256 needs {KEY_BYTES}. "
            f"{_HOW_TO_MAKE_ONE}"
        )
    if len(set(key)) < _FEWEST_DISTINCT_BYTES:
        raise ImproperlyConfigured(f"ENCRYPTION_KEYS, key {key_id!r}: not a random key. {_HOW_TO_MAKE_ONE}")
    return key


def _binding(key_id: str, owner: str) -> bytes:
    if not owner:
        raise ValueError('The owner of a data key is a tenant id or "platform".')
    return frame("data key", key_id, owner, version=_WRAP_VERSION)


_ring: KeyRing | None = None
_reading = threading.Lock()


def key_ring() -> KeyRing:
    """The ring of ``settings.ENCRYPTION_KEYS``, parsed once per process. Raises ImproperlyConfigured."""
    return _ring or reload_key_ring()


def reload_key_ring() -> KeyRing:
    """Read ``settings.ENCRYPTION_KEYS`` again; a ring that does not parse leaves the old one in use."""
    global _ring
    with _reading:
        _ring = KeyRing.parse(getattr(settings, "ENCRYPTION_KEYS", ""))
        return _ring


def new_data_key() -> bytes:
    return os.urandom(KEY_BYTES)


def wrap_data_key(key: bytes, *, owner: str) -> WrappedKey:
    """Wrap a data key for its owner, a tenant id or ``"platform"``; see `KeyRing.wrap`."""
    return key_ring().wrap(key, owner=owner)


def unwrap_data_key(key_id: str, blob: bytes | bytearray | memoryview, *, owner: str) -> bytes:
    """Give a wrapped data key back. Raises RingKeyMissing and SealBroken; see `KeyRing.unwrap`."""
    return key_ring().unwrap(key_id, blob, owner=owner)


def rewrap(key_id: str, blob: bytes | bytearray | memoryview, *, owner: str) -> WrappedKey:
    """Bring a wrapped data key under the first key of the ring; one that is there already comes back unchanged.

    It is opened in any case, so a rotation that ends well has proven every key it passed.
    Raises RingKeyMissing and SealBroken.
    """
    ring = key_ring()
    key = ring.unwrap(key_id, blob, owner=owner)
    if key_id == ring.primary_id:
        return WrappedKey(key_id, bytes(blob))
    return ring.wrap(key, owner=owner)

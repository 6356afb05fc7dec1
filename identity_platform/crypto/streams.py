"""Sealed files: AES-256-GCM in chunks, so that a file of any size is sealed and opened in little memory.

Each file has a key of its own, derived from the owner's data key and the salt in the header. The nonce of a chunk is its
number and whether it is the last one, so chunks cannot be exchanged, repeated or cut off (the STREAM construction of
Hoang, Reyhanitabar, Rogaway and Vizár, 2015).
"""

import io
import os
from typing import IO, TYPE_CHECKING, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from identity_platform.crypto.sealing import NONCE_BYTES, TAG_BYTES, SealBroken, derive_key

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_MAGIC = b"identity-sealed\x01"
_SALT_BYTES = 16
_CHUNK = 1 << 20


def _cipher(data_key: bytes, purpose: str, salt: bytes) -> AESGCM:
    return AESGCM(derive_key(data_key, f"{purpose} {salt.hex()}"))


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(NONCE_BYTES - 1, "big") + bytes([last])


class SealingWriter(io.RawIOBase):
    """A file to write into; `out` gets the sealed form, which is whole after the `with` block."""

    def __init__(self, out: IO[bytes], *, data_key: bytes, purpose: str) -> None:
        salt = os.urandom(_SALT_BYTES)
        self._header = _MAGIC + salt
        self._cipher = _cipher(data_key, purpose, salt)
        self._out = out
        self._waiting = bytearray()
        self._number = 0
        out.write(self._header)

    def __enter__(self) -> Self:
        return self

    def writable(self) -> bool:
        return True

    def write(self, data: "ReadableBuffer") -> int:
        before = len(self._waiting)
        self._waiting += data
        size = len(self._waiting) - before
        # A full chunk waits until there is more: the last one is marked as such.
        while len(self._waiting) > _CHUNK:
            self._seal(_CHUNK, last=False)
        return size

    def _seal(self, size: int, *, last: bool) -> None:
        chunk = bytes(self._waiting[:size])
        del self._waiting[:size]
        self._out.write(self._cipher.encrypt(_nonce(self._number, last=last), chunk, self._header))
        self._number += 1

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an error the last chunk stays out: what was written does not open.
        if kind is None:
            self._seal(len(self._waiting), last=True)
        super().close()


def unseal_file(source: IO[bytes], out: IO[bytes], *, data_key: bytes, purpose: str) -> None:
    """Open what a SealingWriter has sealed. Raises SealBroken when it was altered, cut off or sealed for something else.

    What was written to `out` before that is authentic, but not whole.
    """
    header = source.read(len(_MAGIC) + _SALT_BYTES)
    if len(header) != len(_MAGIC) + _SALT_BYTES or not header.startswith(_MAGIC):
        raise SealBroken("A sealed file has an unknown format.")
    cipher = _cipher(data_key, purpose, header[len(_MAGIC) :])
    chunk, number = source.read(_CHUNK + TAG_BYTES), 0
    while True:
        following = source.read(_CHUNK + TAG_BYTES)
        try:
            out.write(cipher.decrypt(_nonce(number, last=not following), chunk, header))
        except InvalidTag:
            raise SealBroken("A sealed file was altered, cut off, or does not open with this key.") from None
        if not following:
            return
        chunk, number = following, number + 1

"""What the key ring and the seals share: sizes, the one failure, and unambiguous associated data."""

from __future__ import annotations

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16


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

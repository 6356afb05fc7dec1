"""Opaque cursors of lists that are newest first: they name the last row of a page, and belong to one list and its filters."""

import base64
import binascii
import hmac
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from identity_platform.api.errors import CursorInvalid
from identity_platform.crypto import keyed_digest

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# The time in microseconds, the id, the number of the next page; behind it the digest.
_LAYOUT: Final = struct.Struct(">q16sI")
_DIGEST_BYTES: Final = 16
LENGTH: Final = 59


@dataclass(frozen=True, slots=True)
class Position:
    """The last row that was read, and the number of the page that begins behind it."""

    created_at: datetime
    id: UUID
    page: int


def write_cursor(position: Position, *, key: bytes, list_id: bytes) -> str:
    """Return the cursor of a position. `list_id` identifies the tenant, the list and its filters."""
    microseconds = (position.created_at - _EPOCH) // _MICROSECOND
    content = _LAYOUT.pack(microseconds, position.id.bytes, min(position.page, 2**32 - 1))
    return base64.urlsafe_b64encode(content + _digest(content, key, list_id)).decode().rstrip("=")


def read_cursor(text: str, *, key: bytes, list_id: bytes) -> Position:
    """Return the position that a cursor names. Raises CursorInvalid, also for a cursor of another list or other filters."""
    try:
        sealed = base64.b64decode(f"{text}=", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise CursorInvalid from None
    content, digest = sealed[: _LAYOUT.size], sealed[_LAYOUT.size :]
    if len(text) != LENGTH or not hmac.compare_digest(digest, _digest(content, key, list_id)):
        raise CursorInvalid
    microseconds, id_, page = _LAYOUT.unpack(content)
    return Position(_EPOCH + microseconds * _MICROSECOND, UUID(bytes=id_), page)


def _digest(content: bytes, key: bytes, list_id: bytes) -> bytes:
    return keyed_digest(content + list_id, key=key, purpose="list cursor")[:_DIGEST_BYTES]

"""JSON documents that are rendered once and served from memory."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from identity_platform.api.renderers import as_json

_TAG_LENGTH: Final = 32


@dataclass(frozen=True, slots=True)
class JsonDocument:
    """The bytes of a document and their strong entity tag (RFC 9110 section 8.8.3)."""

    content: bytes
    etag: str

    @classmethod
    def of(cls, data: object) -> "JsonDocument":
        """Render a document."""
        content = as_json(data)
        return cls(content, f'"{sha256(content).hexdigest()[:_TAG_LENGTH]}"')

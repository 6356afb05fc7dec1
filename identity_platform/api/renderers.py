"""Render JSON with orjson, without content negotiation."""

from collections.abc import Iterable, Mapping

import orjson
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

# Timestamps are ISO 8601 in UTC with Z.
OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS


def as_json(data: object) -> bytes:
    try:
        return orjson.dumps(data, default=str, option=OPTIONS)
    except TypeError:
        return orjson.dumps(_within_64_bits(data), default=str, option=OPTIONS)


def _within_64_bits(data: object) -> object:
    """Return the same with a float for every integer that orjson cannot write.

    The parser rejects such numbers, but jsonb writes 1e300 out in digits, which Python reads as an int.
    """
    match data:
        case bool():
            return data
        case int() if not -(2**63) <= data < 2**64:
            return float(data)
        case dict():
            return {name: _within_64_bits(value) for name, value in data.items()}
        case list() | tuple():
            return [_within_64_bits(value) for value in data]
        case _:
            return data


class OrjsonRenderer(BaseRenderer):
    media_type = "application/json"
    format = "json"
    charset = None
    render_style = "binary"

    def render(
        self, data: object, accepted_media_type: str | None = None, renderer_context: Mapping[str, object] | None = None
    ) -> bytes:
        return b"" if data is None else as_json(data)


class OnlyJson(BaseContentNegotiation):
    """Select the parser of the body's type, and always the one renderer."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        kind = (request.content_type or "").partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == kind), None)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        # RFC 9110 section 12.5.1 allows to ignore the Accept header.
        only = next(iter(renderers))
        return only, only.media_type or ""

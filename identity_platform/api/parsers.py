"""Strict parsers for bodies and query strings: input with more than one meaning is an error that says where.

Two parsers that read one text differently (the first or the last of two equal fields, a NUL that ends a string in one of
them) let requests pass checks that should stop them. So ambiguous input is rejected here, once.
"""

import binascii
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import IO, Any, NoReturn

from django.conf import settings
from django.http import HttpRequest
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from identity_platform.api.errors import ApiError, BodyTooLarge, MalformedBody, UnsupportedMediaType
from identity_platform.api.malformed_bodies import check_large_body

DEEPEST = 32
# No endpoint has more than a dozen parameters, but a body of 1 MiB could contain 500,000.
MOST_PARAMETERS = 200
# Values of one JSON body: an object of Python for each bracket costs more than a request may before its caller is known.
MOST_VALUES = 10_000
_BIGGEST, _SMALLEST = 2**63 - 1, -(2**63)
_LONGEST_WHOLE = len(str(_SMALLEST))
_LONGEST_DOUBLE = len("-") + sys.float_info.max_10_exp + 1

# Names are shown only if they look like names: a caller who mixes up name and secret must not find it in a log.
_SHOWABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_UTF_8 = re.compile(r'\s*charset\s*=\s*("?)utf-8\1\s*', re.IGNORECASE | re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
# For the depth of nesting, one kind of bracket is as good as the other.
_BRACKETS = bytes.maketrans(b"[{]}", b"(())")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class QueryInvalid(ApiError):
    """400: the query string is ambiguous."""

    code = "query_invalid"
    implied_by = "any"
    message = "The query string is not valid."


class StrictParser(BaseParser):
    """A parser of one media type in UTF-8, for bodies within the limit."""

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """Read the body. Raises UnsupportedMediaType (another type or charset), BodyTooLarge, and MalformedBody."""
        _require_type(media_type, self.media_type or "")
        return self.read(_read(stream, parser_context))

    def read(self, raw: bytes) -> dict[str, Any]:
        """Return the fields of the body. Raises MalformedBody."""
        raise NotImplementedError


class StrictJSONParser(StrictParser):
    """One JSON object (RFC 8259) in UTF-8, without anything ambiguous. An empty body is an empty object."""

    media_type = "application/json"

    def read(self, raw: bytes) -> dict[str, Any]:
        return json_object(raw)


class StrictFormParser(StrictParser):
    """The form bodies of OAuth 2.0 (RFC 6749 section 3.2 and appendix B), without repeated parameters and broken encodings.

    A parameter without a value counts as not sent (RFC 6749 section 3.2).
    """

    media_type = "application/x-www-form-urlencoded"

    def read(self, raw: bytes) -> dict[str, Any]:
        try:
            parameters = self._read_parameters(raw)
        except Ambiguous as problem:
            raise MalformedBody(problem.text, details=problem.details) from None
        return {name: value for name, value in parameters.items() if value}

    def _read_parameters(self, raw: bytes) -> dict[str, Any]:
        return _parameters(raw)


class OAuthFormParser(StrictFormParser):
    """The same, with a list of resources: `resource` may be sent several times (RFC 8707 section 2)."""

    def _read_parameters(self, raw: bytes) -> dict[str, Any]:
        pairs = list(form_pairs(raw))
        resources = [value for name, value in pairs if name == "resource" and value]
        return {**_unique((name, value) for name, value in pairs if name != "resource"), "resource": resources}


def form_pairs(raw: bytes) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a form body or query string, in order.

    Raises Ambiguous for broken percent signs, what is not UTF-8, NUL, and too many parameters.
    """
    if _BROKEN_ESCAPE.search(raw):
        raise Ambiguous("A percent sign must stand before two hexadecimal digits; write the sign itself as %25.")
    pieces = raw.split(b"&", MOST_PARAMETERS)
    if len(pieces) > MOST_PARAMETERS:
        raise Ambiguous(f"There are more than {MOST_PARAMETERS} parameters.")
    for piece in pieces:
        if not piece:
            continue
        encoded_name, _, encoded_value = piece.partition(b"=")
        name = _text(encoded_name, "")
        yield name, _text(encoded_value, name) if encoded_value else ""


def query_parameters(request: Request | HttpRequest) -> dict[str, str]:
    """Return the query string as one value for each name.

    Raises QueryInvalid (400) for repeated names, broken percent signs, what is not UTF-8, and NUL.
    """
    query: str = request.META.get("QUERY_STRING", "")
    if not query:
        return {}
    try:
        # WSGI passes bytes as Latin-1 characters (PEP 3333).
        return _parameters(query.encode("latin-1", "replace"))
    except Ambiguous as problem:
        raise QueryInvalid(problem.text, details=problem.details) from None


def json_object(raw: bytes) -> dict[str, Any]:
    """Read one JSON object from bytes, with the rules of `StrictJSONParser`. Raises MalformedBody."""
    if not raw:
        return {}
    try:
        text = raw.decode()
    except UnicodeDecodeError as problem:
        raise MalformedBody(f"The body is not valid UTF-8 (at byte {problem.start}).") from None
    if text[0] == "\ufeff":
        raise MalformedBody("The body begins with a byte order mark. Send UTF-8 without one.")
    _check_size(raw)
    try:
        document = _decoder.decode(text)
    except json.JSONDecodeError as problem:
        # The message of the standard library names what was expected and where, never what was sent.
        raise MalformedBody(
            f"The body is not valid JSON: {problem.msg} at line {problem.lineno}, column {problem.colno}."
        ) from None
    if not isinstance(document, dict):
        raise MalformedBody('The body must be a JSON object: {"name": value, ...}.')
    # Walking costs more than parsing, so only text that could contain an error is walked: with an escape of NUL or of half
    # a surrogate pair.
    if "\\u0000" in text or "\\ud" in text or "\\uD" in text:
        _walk(document)
    return document


_TOO_DEEP = f"The body is nested more than {DEEPEST} levels deep."
_TOO_MANY = f"The body has more than {MOST_VALUES:,} values."


def _check_size(raw: bytes) -> None:
    """Reject a body with too many values or levels before it is parsed. Raises MalformedBody.

    Every step is one pass over the bytes in C: parsing a megabyte of brackets takes hundred times as long.
    """
    brackets = raw.count(b"[") + raw.count(b"{")
    if brackets <= DEEPEST and brackets + raw.count(b",") <= MOST_VALUES:
        return
    # Without its strings. A backslash is in a string, or the body is not JSON.
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw
    if plain.count(b'"') > 4 * MOST_VALUES:  # of a name and a value
        raise MalformedBody(_TOO_MANY)
    outside = b"".join(plain.split(b'"')[::2])
    if outside.count(b",") + outside.count(b"[") + outside.count(b"{") > MOST_VALUES:
        raise MalformedBody(_TOO_MANY)
    nested = outside.translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(DEEPEST):
        nested = nested.replace(b"()", b"")
    if b"()" in nested or nested.count(b"(") > DEEPEST:
        raise MalformedBody(_TOO_DEEP)


def _walk(body: dict[str, object]) -> None:
    """Reject NUL and lone surrogates, and name the field."""
    levels: list[Iterator[tuple[str | int, object]]] = [iter(body.items())]
    path: list[str | int] = []
    while levels:
        for key, value in levels[-1]:
            if isinstance(key, str) and (fault := _fault(key)):
                raise MalformedBody(f"{fault}: the name of a field of {_path_text(path)}.")
            if isinstance(value, str):
                if fault := _fault(value):
                    raise MalformedBody(f"{fault}: {_path_text([*path, key])}.")
            elif isinstance(value, dict | list):
                levels.append(iter(value.items() if isinstance(value, dict) else enumerate(value)))
                path.append(key)
                break
        else:
            levels.pop()
            if path:
                path.pop()


def _fault(text: str) -> str | None:
    if "\0" in text:
        return "NUL characters are not allowed"
    return "Half a surrogate pair is not a character" if _SURROGATE.search(text) else None


def _path_text(path: Sequence[str | int]) -> str:
    shown = "".join(f"[{step}]" if isinstance(step, int) else f".{_shown(step)}" for step in path)
    return shown.lstrip(".") or "the body"


def _shown(name: str) -> str:
    return name if _SHOWABLE.fullmatch(name) else "?"


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, times in counts.items() if times > 1)
        raise MalformedBody(f"The field {_shown(twice)!r} appears more than once.")
    return members


def _number_of(digits: str) -> int | float:
    # Length first: converting a million digits takes seconds, and Python rejects more than 4,300 with a ValueError.
    if len(digits) <= _LONGEST_WHOLE and _SMALLEST <= (number := int(digits)) <= _BIGGEST:
        return number
    # jsonb writes 1e300 out in digits. Such a number in a response or an export must be accepted without losing a digit.
    if len(digits) <= _LONGEST_DOUBLE and Decimal(repr(double := float(digits))) == Decimal(digits):
        return double
    raise MalformedBody("A number is beyond 64 bits.")


def _fraction(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise MalformedBody("A number is too large for a double.")
    return number


def _constant(name: str) -> NoReturn:
    raise MalformedBody(f"{name} is not JSON.")


_decoder = json.JSONDecoder(
    object_pairs_hook=_members, parse_int=_number_of, parse_float=_fraction, parse_constant=_constant
)


def _require_type(content_type: str | None, media_type: str) -> None:
    if content_type is None or content_type == media_type:
        return
    kind, semicolon, parameter = content_type.partition(";")
    # UTF-7 and similar charsets turn harmless bytes into quotes and brackets, so UTF-8 is the only parameter allowed.
    if kind.strip().lower() != media_type or (semicolon and not _UTF_8.fullmatch(parameter)):
        raise UnsupportedMediaType.expecting(media_type)


def _read(stream: IO[bytes], parser_context: Mapping[str, object] | None) -> bytes:
    meta: Mapping[str, object] = getattr((parser_context or {}).get("request"), "META", {})
    content_length = str(meta.get("CONTENT_LENGTH") or "")
    length = (
        int(content_length)
        if content_length.isascii() and content_length.isdigit() and len(content_length) < 20
        else None
    )
    if str(meta.get("HTTP_CONTENT_ENCODING", "")).strip().lower() not in ("", "identity"):
        # A megabyte of zeros is a kilobyte compressed, so bodies are not decompressed (RFC 9110 section 15.5.16).
        raise UnsupportedMediaType(
            "Send the body as it is, without Content-Encoding.", headers={"Accept-Encoding": "identity"}
        )
    limit: int = settings.API_BODY_LIMIT
    if length is not None and length > limit:
        raise BodyTooLarge
    try:
        raw = stream.read(limit + 1)
    except OSError:
        raise MalformedBody("The body could not be read to its end.") from None
    if len(raw) > limit:
        raise BodyTooLarge
    # After reading: a response to a body that is still on its way would be lost.
    check_large_body(len(raw))
    if length is not None and len(raw) < length:
        raise MalformedBody("The body is shorter than its Content-Length.")
    return raw


class Ambiguous(Exception):
    """Parameters are ambiguous. The callers turn it into their own error."""

    def __init__(self, text: str, name: str = "", advice: str = "") -> None:
        self.text = text
        self.details = {name: [advice]} if _SHOWABLE.fullmatch(name) else None
        super().__init__(text)


def _parameters(raw: bytes) -> dict[str, str]:
    return _unique(form_pairs(raw))


def _unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for name, value in pairs:
        if name in parameters:
            raise Ambiguous(f"The parameter {_shown(name)!r} appears more than once.", name, "Send it once.")
        parameters[name] = value
    return parameters


def _text(encoded: bytes, name: str) -> str:
    if b"+" in encoded:
        encoded = encoded.replace(b"+", b" ")
    if b"%" in encoded:
        # The only percent-decoder of the standard library in C. Each percent sign is one of an escape (`form_pairs`).
        encoded = binascii.a2b_qp(encoded.replace(b"=", b"=3D").replace(b"%", b"="))
    try:
        text = encoded.decode()
    except UnicodeDecodeError:
        raise Ambiguous("A parameter is not valid UTF-8.", name, "Send UTF-8, percent-encoded.") from None
    if "\0" in text:
        raise Ambiguous("NUL characters are not allowed.", name, "NUL characters are not allowed.")
    return text

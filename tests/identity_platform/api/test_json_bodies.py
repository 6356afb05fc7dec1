"""JSON bodies: what is read and rejected, and the error."""

import contextlib
import io
import json
import time
from typing import Any

import pytest
from django.http import UnreadablePostError
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st
from pytest_django.fixtures import Settings
from rest_framework.request import Request

from identity_platform.api.errors import BodyTooLarge, MalformedBody, UnsupportedMediaType
from identity_platform.api.parsers import StrictFormParser, StrictJSONParser
from identity_platform.api.renderers import OnlyJson


def read(body: bytes, content_type: str = "application/json", **meta: Any) -> Any:
    """Return `request.data` as a view reads it."""
    sent = RequestFactory().generic("POST", "/", body, content_type, **meta)
    return Request(sent, parsers=[StrictJSONParser(), StrictFormParser()], negotiator=OnlyJson()).data


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(names, inner, max_size=5),
    max_leaves=20,
)


@given(body=st.dictionaries(names, json_values, max_size=5), ascii_only=st.booleans())
def test_json_parser_reads_every_valid_object(body: dict[str, Any], ascii_only: bool) -> None:
    assert read(json.dumps(body, ensure_ascii=ascii_only).encode()) == body


def test_json_parser_reads_empty_body_as_empty_object() -> None:
    assert read(b"") == {}


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": "\\ud83d\\ude00"}', "😀"),
        ('{"a": "😀"}'.encode(), "😀"),
        (b'{"a": "\\\\u0000"}', "\\u0000"),
        (b'{"a": "\\\\ud800"}', "\\ud800"),
        (b'{"a": 9223372036854775807}', 2**63 - 1),
        (b'{"a": -9223372036854775808}', -(2**63)),
        (b'{"a": 1e308}', 1e308),
        (b'{"a": 602214076000000000000000}', 6.02214076e23),
        (b'{"a": -1' + b"0" * 300 + b"}", -1e300),
        (b'{"a": 1e-400}', 0.0),
        (b'{"a": -0}', 0),
        (b'{"a": "{[{[{[{[{[{[{[{[{[{[{[{[{[{[{[{[{[{[{["}', "{[" * 18 + "{["),
    ],
)
def test_json_parser_reads_what_only_looks_dangerous(body: bytes, value: object) -> None:
    assert read(body) == {"a": value}


def test_json_parser_reads_32_levels_and_rejects_33() -> None:
    deepest = b'{"a":' + b"[" * 31 + b"]" * 31 + b"}"

    assert list(read(deepest)) == ["a"]
    with pytest.raises(MalformedBody, match="nested more than 32 levels deep"):
        read(b'{"a":' + b"[" * 32 + b"]" * 32 + b"}")


LARGE = {
    "lists": b'{"a":[' + b"[]," * 340_000 + b"[]]}",
    "objects": b'{"a":[' + b"{}," * 340_000 + b"{}]}",
    "nested": b'{"a":[' + (b"[" * 30 + b"]" * 30 + b",") * 17_000 + b"1]}",
    "numbers": b'{"a":[' + b"1," * 500_000 + b"1]}",
    "names": b"{" + b",".join(b'"%x":1' % number for number in range(90_000)) + b"}",
    "texts": b'{"a":[' + b'"",' * 340_000 + b'""]}',
}


@pytest.mark.parametrize("kind", LARGE)
def test_json_parser_rejects_large_bodies_before_parsing(kind: str) -> None:
    began = time.process_time()
    for _ in range(10):
        with pytest.raises(MalformedBody, match="more than 10,000 values"):
            read(LARGE[kind])
    # A hundredth of a second each; parsing takes up to 0.7 s.
    assert time.process_time() - began < 0.1 * 5


@pytest.mark.parametrize("text", ["[" * 500_000, '{[,\\"' * 100_000, "\\\\" * 200_000, '\\"' * 250_000, ",x" * 400_000])
def test_json_parser_does_not_count_what_is_in_strings(text: str) -> None:
    body = ('{"a": "' + text + '", "b": [' + "[]," * 40 + "[]]}").encode()
    assert read(body) == json.loads(body)


def test_json_parser_reads_10000_values_and_rejects_10001() -> None:
    most = b'{"a": [' + b"1," * 9_998 + b"1]}"
    assert len(read(most)["a"]) == 9_999
    with pytest.raises(MalformedBody, match="more than 10,000 values"):
        read(most[:-2] + b",1]}")


def test_json_parser_does_not_count_siblings_as_depth() -> None:
    assert read(b'{"a": [' + b"{}," * 500 + b'[{"b": []}]]}')["a"][-1] == [{"b": []}]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"[]", 'must be a JSON object: {"name": value, ...}'),
        (b'"text"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"1", "must be a JSON object"),
        (b" ", "not valid JSON: Expecting value at line 1, column 2"),
        (b'{"a": 1,}', "not valid JSON"),
        (b"{'a': 1}", "line 1, column 2"),
        (b'{"a": 1} {"a": 2}', "not valid JSON: Extra data"),
        (b'{"a": 1}\0', "not valid JSON"),
        (b'{"a": 01}', "not valid JSON"),
        (b'{"a": +1}', "not valid JSON"),
        (b'{"a": .5}', "not valid JSON"),
        (b'{"a": 0x10}', "not valid JSON"),
        (b'{"a": 1}//', "not valid JSON"),
        (b'{"a": "\n"}', "not valid JSON"),
        (b'{"a": "\0"}', "not valid JSON"),
        (b'{"a": "\\x41"}', "not valid JSON"),
        (b'{"a": "\\u00"}', "not valid JSON"),
        ('{"a": \uff11\uff12}'.encode(), "not valid JSON"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": Infinity}', "Infinity is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": 1e400}', "too large for a double"),
        (b'{"a": -1e400}', "too large for a double"),
        (b'{"a": 9223372036854775808}', "beyond 64 bits"),
        (b'{"a": -9223372036854775809}', "beyond 64 bits"),
        (b'{"a": 1000000000000000000001}', "beyond 64 bits"),
        (b'{"a": 1' + b"0" * 400 + b"}", "beyond 64 bits"),
        (b'{"a": ' + b"9" * 5000 + b"}", "beyond 64 bits"),
        (b'{"a": 1, "a": 1}', "field 'a' appears more than once"),
        (b'{"a": 1, "\\u0061": 2}', "field 'a' appears more than once"),
        (b'{"o": {"tenant_id": 1, "tenant_id": 2}}', "field 'tenant_id' appears more than once"),
        (b'{"s3cret pass": 1, "s3cret pass": 2}', r"field '\?' appears more than once"),
        (b'{"a": {"b": ["x", "\\u0000"]}}', r"NUL characters are not allowed: a\.b\[1\]\."),
        (b'{"a": {"\\u0000": 1}}', r"NUL characters are not allowed: the name of a field of a\."),
        (b'{"\\u0000": 1}', "NUL characters are not allowed: the name of a field of the body"),
        (b'{"a": "\\ud800"}', r"surrogate pair is not a character: a\."),
        (b'{"a": "\\uDC00\\uD800"}', r"surrogate pair is not a character: a\."),
        (b'{"a": ["", {"\\udfff": 1}]}', r"surrogate pair is not a character: the name of a field of a\[1\]"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a": "\xff"}', r"not valid UTF-8 \(at byte 7\)"),
        (b'{"a": "\xed\xa0\x80"}', "not valid UTF-8"),
        (b'{"a": "\xc0\x80"}', "not valid UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "not valid UTF-8"),
        (b'{"a":' * 5_000, "nested more than 32 levels deep"),
        (b"[" * 5_000, "nested more than 32 levels deep"),
        (b'{"a":' * 100_000, "more than 10,000 values"),
        (b"[" * 500_000, "more than 10,000 values"),
    ],
    ids=lambda value: repr(value[:32]) if isinstance(value, bytes) else "",
)
def test_json_parser_rejects_ambiguous_bodies(body: bytes, says: str) -> None:
    with pytest.raises(MalformedBody, match=says):
        read(body)


@pytest.mark.parametrize(
    "body", [b'{"password": "hunter2"', b'{"p": "hunter2\\u0000"}', b'{"hunter 2": 1, "hunter 2": 2}']
)
def test_parser_error_does_not_repeat_the_body(body: bytes) -> None:
    with pytest.raises(MalformedBody) as raised:
        read(body)

    assert "hunter" not in raised.value.text
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        'application/json; charset="utf-8"',
    ],
)
def test_json_parser_accepts_every_spelling_of_utf_8(content_type: str) -> None:
    assert read(b'{"a": 1}', content_type) == {"a": 1}


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json; charset=utf-7",
        "application/json; charset=utf-16",
        "application/json; charset=latin-1",
        'application/json; charset="utf-8',
        "application/json; version=1",
        "application/json; charset=utf-8; charset=utf-7",
        "application/json;",
    ],
)
def test_json_parser_rejects_other_charset_or_parameter(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType, match="Content-Type: application/json"):
        read(b'{"a": 1}', content_type)


def test_body_of_exactly_the_limit_is_read(settings: Settings) -> None:
    settings.API_BODY_LIMIT = 64

    assert read(b'{"a": 1}'.ljust(64)) == {"a": 1}


def test_body_over_the_limit_is_413_by_content_length(settings: Settings) -> None:
    settings.API_BODY_LIMIT = 64

    with pytest.raises(BodyTooLarge):
        read(b'{"a": 1}', CONTENT_LENGTH="65")


def test_body_over_the_limit_is_413_without_content_length(settings: Settings) -> None:
    settings.API_BODY_LIMIT = 64

    with pytest.raises(BodyTooLarge):
        StrictJSONParser().parse(io.BytesIO(b" " * 65), "application/json", {"request": RequestFactory().post("/")})


def test_body_that_ends_early_is_400() -> None:
    request = RequestFactory().post("/", CONTENT_LENGTH="9")

    with pytest.raises(MalformedBody, match="shorter than its Content-Length"):
        StrictJSONParser().parse(io.BytesIO(b'{"a": 1}'), "application/json", {"request": request})


def test_caller_that_hangs_up_causes_no_fault() -> None:
    class HungUp(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise UnreadablePostError

    with pytest.raises(MalformedBody, match="could not be read to its end"):
        StrictJSONParser().parse(HungUp(), "application/json")


@given(body=st.binary(max_size=60))
def test_json_parser_returns_object_or_error_for_any_bytes(body: bytes) -> None:
    with contextlib.suppress(MalformedBody):
        assert isinstance(read(body), dict)


@given(body=st.text(alphabet='{}[]":,\\u0dD8aeE+-.1 \n', max_size=60))
def test_json_parser_survives_near_json(body: str) -> None:
    with contextlib.suppress(MalformedBody):
        assert "\\u0000" not in json.dumps(read(body.encode()), ensure_ascii=False).encode().decode()

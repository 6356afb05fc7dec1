"""Query strings and form bodies: one value for each name, in UTF-8, or an error."""

import contextlib
from typing import Any
from urllib.parse import quote_plus, urlencode

import pytest
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st
from pytest_django.fixtures import Settings
from rest_framework.request import Request

from identity_platform.api.errors import BodyTooLarge, MalformedBody, UnsupportedMediaType
from identity_platform.api.parsers import Ambiguous, QueryInvalid, StrictFormParser, form_pairs, query_parameters
from identity_platform.api.renderers import OnlyJson

FORM = "application/x-www-form-urlencoded"
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")


def query(raw: str) -> dict[str, str]:
    return query_parameters(RequestFactory().get("/", QUERY_STRING=raw))


def form(raw: bytes, content_type: str = FORM) -> Any:
    sent = RequestFactory().generic("POST", "/", raw, content_type)
    return Request(sent, parsers=[StrictFormParser()], negotiator=OnlyJson()).data


@given(parameters=st.dictionaries(st.text(characters, min_size=1), st.text(characters), max_size=8))
def test_query_parser_reads_every_valid_query(parameters: dict[str, str]) -> None:
    assert query(urlencode(parameters)) == parameters


@given(parameters=st.dictionaries(st.text(characters, min_size=1), st.text(characters, min_size=1), max_size=8))
def test_form_parser_reads_every_valid_form(parameters: dict[str, str]) -> None:
    assert form(urlencode(parameters).encode()) == parameters


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        ("", {}),
        ("&&", {}),
        ("page=1&&limit=20", {"page": "1", "limit": "20"}),
        ("name=J%C3%B6rg+Ha%2B", {"name": "Jörg Ha+"}),
        ("flag", {"flag": ""}),
        ("name=", {"name": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("a;b=1", {"a;b": "1"}),
        ("a=%EF%BF%BD", {"a": "\ufffd"}),
        ("a=1&A=2", {"a": "1", "A": "2"}),
    ],
)
def test_query_parser_gives_unusual_queries_one_meaning(raw: str, read: dict[str, str]) -> None:
    assert query(raw) == read


def test_query_parser_reads_drf_request_and_raw_utf_8() -> None:
    sent = RequestFactory().get("/", QUERY_STRING="name=Jörg".encode().decode("latin-1"))

    assert query_parameters(Request(sent)) == {"name": "Jörg"}


AMBIGUOUS = [
    ("tenant_id=1&tenant_id=2", "'tenant_id' appears more than once"),
    ("tenant_id=1&tenant%5Fid=1", "'tenant_id' appears more than once"),
    ("a=&a=1", "'a' appears more than once"),
    ("s3cret%20pass=1&s3cret%20pass=2", r"'\?' appears more than once"),
    ("a=%00", "NUL"),
    ("%00=a", "NUL"),
    ("a=%FF", "not valid UTF-8"),
    ("a=%ED%A0%80", "not valid UTF-8"),
    ("a=%C0%80", "not valid UTF-8"),
    ("%FF=a", "not valid UTF-8"),
    ("a=\xff", "not valid UTF-8"),
    ("a=100%", "write the sign itself as %25"),
    ("a=%4", "write the sign itself as %25"),
    ("a=%zz", "write the sign itself as %25"),
    ("a=%u0041", "write the sign itself as %25"),
    ("&".join(f"p{number}" for number in range(201)), "more than 200 parameters"),
]


@pytest.mark.parametrize(("raw", "says"), AMBIGUOUS)
def test_query_parser_rejects_ambiguous_queries(raw: str, says: str) -> None:
    with pytest.raises(QueryInvalid, match=says) as raised:
        query(raw)

    assert raised.value.status == 400


@pytest.mark.parametrize(("raw", "says"), AMBIGUOUS)
def test_form_parser_rejects_ambiguous_forms(raw: str, says: str) -> None:
    with pytest.raises(MalformedBody, match=says):
        form(raw.encode("latin-1"))


def test_query_error_names_its_parameter() -> None:
    with pytest.raises(QueryInvalid) as raised:
        query("page=1&page=2")

    assert raised.value.details == {"page": ["Send it once."]}


def test_form_parameter_without_value_is_absent() -> None:
    assert form(b"grant_type=client_credentials&scope=&state") == {"grant_type": "client_credentials"}


def test_form_parser_accepts_utf_8_charset_only() -> None:
    assert form(b"a=1", f"{FORM}; charset=UTF-8") == {"a": "1"}
    with pytest.raises(UnsupportedMediaType, match=FORM):
        form(b"a=1", f"{FORM}; charset=utf-7")


def test_form_over_the_limit_is_413(settings: Settings) -> None:
    settings.API_BODY_LIMIT = 8

    assert form(b"a=123456") == {"a": "123456"}
    with pytest.raises(BodyTooLarge):
        form(b"a=1234567")


@given(raw=st.binary(max_size=40))
def test_form_parser_returns_text_or_error_for_any_bytes(raw: bytes) -> None:
    with contextlib.suppress(QueryInvalid):
        read = query(raw.decode("latin-1"))
        assert not any("\0" in name + value for name, value in read.items())
        assert query(urlencode(read)) == read


@given(st.binary(max_size=40), st.booleans())
def test_percent_signs_are_decoded_as_the_standard_library_does(value: bytes, all_encoded: bool) -> None:
    sent = "".join(f"%{byte:02x}" for byte in value) if all_encoded else quote_plus(value, safe="=/~")
    try:
        expected = value.decode()
    except UnicodeDecodeError:
        expected = "\0"
    if "\0" in expected:
        with pytest.raises(Ambiguous):
            list(form_pairs(f"a={sent}".encode()))
    else:
        assert list(form_pairs(f"a={sent}".encode())) == [("a", expected)]

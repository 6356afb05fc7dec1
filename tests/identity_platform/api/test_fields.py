"""Strict fields: the values that they accept, convert and reject."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import jsonschema_rs
import pytest
from drf_spectacular.openapi import AutoSchema
from rest_framework import serializers

from identity_platform.api.fields import (
    Boolean,
    Choice,
    EmailAddress,
    Identifier,
    Integer,
    Items,
    QueryBoolean,
    QueryInteger,
    Text,
    Timestamp,
)
from identity_platform.api.json_field import JsonObject
from identity_platform.api.url_field import HttpUrl

Field = serializers.Field[Any, Any, Any, Any]

ID = "6f0f7b9e-6f4e-4a53-9c07-0C6C9C8F2F5D"
OF_OTHER_TYPES: dict[str, Sequence[Any]] = {
    "string": [1, 1.5, True, False, ["a"], [], {"a": 1}, {}],
    "boolean": ["true", "false", "", "1", "yes", 0, 1, 1.0, [], {}],
    "integer": ["1", "", 1.0, 1.5, True, False, [1], {}],
    "object": ["{}", "", 1, True, [], [{}]],
}


def accepted(field: Field, value: Any) -> Any:
    """Return the value in a serializer's validated data."""
    shape = _shape(field)(data={"field": value})
    shape.is_valid(raise_exception=True)
    return shape.validated_data["field"]


def error(field: Field, value: Any) -> str:
    """Return the only message of a rejected value."""
    shape = _shape(field)(data={"field": value})
    assert not shape.is_valid(), f"{value!r} was accepted as {shape.validated_data['member']!r}"
    (message,) = shape.errors["field"]
    return str(message)


def _shape(field: Field) -> type[serializers.Serializer[Any]]:
    return type("Shape", (serializers.Serializer,), {"field": field})


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        (Text(), "string"),
        (Text(trim=True, allow_blank=True), "string"),
        (Identifier(), "string"),
        (EmailAddress(), "string"),
        (Timestamp(), "string"),
        (HttpUrl(), "string"),
        (Choice(["a", "1", "True"]), "string"),
        (Boolean(), "boolean"),
        (Integer(), "integer"),
        (JsonObject(), "object"),
        (QueryBoolean(), "string"),
        (QueryInteger(), "string"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, serializers.Field) else "",
)
def test_field_rejects_other_types_null_and_absence(field: Field, kind: str) -> None:
    for value in OF_OTHER_TYPES[kind]:
        assert error(field, value).startswith("Send ") or value == ""
    assert error(field, None) == "This field may not be null."

    missing = _shape(field)(data={})
    assert not missing.is_valid()
    assert missing.errors == {"field": ["This field is required."]}


@pytest.mark.parametrize("field", [Text(allow_null=True), Integer(allow_null=True), Boolean(allow_null=True)])
def test_field_accepts_null_where_allowed(field: Field) -> None:
    assert accepted(field, None) is None


@pytest.mark.parametrize("optional", [{"required": False}, {"default": "standard"}])
def test_null_for_an_optional_field_counts_as_absent(optional: dict[str, Any]) -> None:
    shape = _shape(Text(**optional))
    absent, null = shape(data={}), shape(data={"field": None})

    assert absent.is_valid()
    assert null.is_valid()
    assert null.validated_data == absent.validated_data
    assert error(Items(Text(), most=3, required=False), [None])


def test_false_zero_and_empty_object_are_values() -> None:
    assert accepted(Boolean(), False) is False
    assert accepted(Integer(), 0) == 0
    assert accepted(JsonObject(), {}) == {}


def test_optional_field_is_absent_or_has_its_default() -> None:
    class Shape(serializers.Serializer[Any]):
        name = Text(required=False)
        limit = QueryInteger(default=20)
        active = Boolean(required=False)

    shape = Shape(data={})

    assert shape.is_valid()
    assert shape.validated_data == {"limit": 20}


# --- Text


@pytest.mark.parametrize("value", ["a", " a ", "   ", "Jörg Müßig", "😀", "a'b\"c%_\\", "<script>", "x" * 5000])
def test_text_keeps_its_value(value: str) -> None:
    assert accepted(Text(), value) == value


@pytest.mark.parametrize("code_point", [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0xD800, 0xDFFF])
def test_line_rejects_controls_line_breaks_and_surrogates(code_point: int) -> None:
    assert error(Text(), f"a{chr(code_point)}b") == "Send one line without control characters."
    assert error(Text(), f"a{chr(code_point)}").startswith("Send one line")


def test_multiline_text_rejects_controls_but_newline_and_tab() -> None:
    field = Text(single_line=False)

    assert accepted(field, "one\n\ttwo\u2028") == "one\n\ttwo\u2028"
    for control in ("\r\n", "\0", "\x1b", "\x0b", "\x7f", "\x85", "\ud800"):
        assert error(field, f"a{control}b").startswith("Control characters other than line feed and tab")


def test_text_rejects_blank_unless_allowed() -> None:
    assert error(Text(), "") == "This field may not be empty."
    assert error(Text(trim=True), " \t ") == "This field may not be empty."
    assert accepted(Text(allow_blank=True), "") == ""
    assert accepted(Text(allow_blank=True, trim=True), "  ") == ""


def test_text_is_trimmed_only_if_asked() -> None:
    assert accepted(Text(trim=True), "  Ann  ") == "Ann"
    assert accepted(Text(trim=True, max_length=3), "  Ann  ") == "Ann"


def test_text_length_counts_characters() -> None:
    field = Text(min_length=2, max_length=3)

    assert accepted(field, "äöü") == "äöü"
    assert error(field, "äöüß") == "Send at most 3 characters."
    assert error(field, "ä") == "Send at least 2 characters."


def test_field_runs_its_own_validators() -> None:
    def no_x(value: str) -> None:
        if "x" in value:
            raise serializers.ValidationError("No x.")

    assert accepted(Text(validators=[no_x]), "abc") == "abc"
    assert error(Text(validators=[no_x]), "abx") == "No x."


# --- Flags and numbers


def test_booleans_accept_only_their_spellings() -> None:
    assert accepted(Boolean(), True) is True
    for text in ("true", "True", "TRUE", "1"):
        assert accepted(QueryBoolean(), text) is True
    for text in ("false", "False", "fAlSe", "0"):
        assert accepted(QueryBoolean(), text) is False
    for text in ("yes", "on", "", " true", "true\n", "null", "01", "10", "\u0661", "fal\u017fe"):
        assert error(QueryBoolean(), text) == "Send true, false, 1 or 0."


@pytest.mark.parametrize("number", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_integer_accepts_64_bits(number: int) -> None:
    assert accepted(Integer(), number) == number


def test_integer_rejects_numbers_out_of_bounds() -> None:
    assert error(Integer(), 2**63) == f"Send at most {2**63 - 1}."
    assert error(Integer(), -(2**63) - 1) == f"Send at least {-(2**63)}."
    assert error(Integer(min_value=1, max_value=5), 0) == "Send at least 1."
    assert error(Integer(min_value=1, max_value=5), 6) == "Send at most 5."


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("1", 1), ("007", 7), ("0" * 5000 + "7", 7), (str(2**63 - 1), 2**63 - 1)]
)
def test_query_integer_reads_ascii_digits(text: str, number: int) -> None:
    assert accepted(QueryInteger(), text) == number


@pytest.mark.parametrize(
    "text", ["", "\uff11\uff12", "\u0661", "\u00b2", "1_0", "+1", "-1", " 1", "1 ", "1\n", "1.0", "1e3", "0x1", "NaN"]
)
def test_query_integer_rejects_anything_but_ascii_digits(text: str) -> None:
    assert error(QueryInteger(), text) == "Send a whole number in the digits 0 to 9."


def test_query_integer_rejects_numbers_out_of_bounds() -> None:
    assert error(QueryInteger(min_value=1), "0") == "Send at least 1."
    assert error(QueryInteger(max_value=5), "6") == "Send at most 5."
    for text in (str(2**63), "9" * 5000):
        assert error(QueryInteger(), text) == f"Send at most {2**63 - 1}."


def test_query_integer_clamps_to_its_maximum() -> None:
    limit = QueryInteger(min_value=1, max_value=100, clamp=True)

    assert accepted(limit, "99") == 99
    assert accepted(limit, "101") == 100
    assert accepted(limit, "9" * 5000) == 100
    assert error(limit, "0") == "Send at least 1."


# --- Identifiers and times


def test_identifier_accepts_either_case() -> None:
    assert accepted(Identifier(), ID) == accepted(Identifier(), ID.lower()) == uuid.UUID(ID)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ID.replace("-", ""),
        f"{{{ID}}}",
        f"urn:uuid:{ID}",
        f"{ID}\n",
        f" {ID}",
        ID[:-1],
        f"{ID}0",
        f"{ID[:-1]}g",
        f"{ID[:-1]}\uff11",
        ID.replace("-", "_"),
        ID.replace("-", "", 1) + "-",
    ],
)
def test_identifier_rejects_other_spellings(text: str) -> None:
    assert error(Identifier(), text).startswith("Send a UUID in its form of 36 characters")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2030-01-31T12:00:00Z", datetime(2030, 1, 31, 12, tzinfo=UTC)),
        ("2030-01-31t12:00:00z", datetime(2030, 1, 31, 12, tzinfo=UTC)),
        ("2030-01-31 12:00:00+02:00", datetime(2030, 1, 31, 10, tzinfo=UTC)),
        ("2030-01-31T12:00-05:30", datetime(2030, 1, 31, 17, 30, tzinfo=UTC)),
        ("2030-01-31T12:00:00.5Z", datetime(2030, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)),
        ("2030-01-31T12:00:00.123456789Z", datetime(2030, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)),
        ("2028-02-29T00:00:00-00:00", datetime(2028, 2, 29, tzinfo=UTC)),
    ],
)
def test_timestamp_converts_to_utc(text: str, moment: datetime) -> None:
    read = accepted(Timestamp(), text)

    assert read == moment
    assert read.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2030-01-31",
        "2030-01-31T12:00:00",
        "2030-01-31T12:00:00 02:00",
        "2029-02-29T12:00:00Z",
        "2030-13-01T12:00:00Z",
        "2030-01-31T24:00:01Z",
        "2030-01-31T23:59:60Z",
        "2030-01-31T12:00:00+25:00",
        "0000-01-01T00:00:00Z",
        "20300131T120000Z",
        "2030-W05-4T12:00:00Z",
        "2030-01-31T12:00:00Z\n",
        "\uff12030-01-31T12:00:00Z",
        "1893499200",
        "now",
        "2030-01-31T12:00:00.Z",
    ],
)
def test_timestamp_rejects_missing_offset_and_other_forms(text: str) -> None:
    assert error(Timestamp(), text).startswith("Send a time with its offset")


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
def test_timestamp_rejects_years_out_of_range(text: str) -> None:
    assert error(Timestamp(), text) == "Send a time between the years 1 and 9999."


def test_timestamp_is_rendered_with_z() -> None:
    assert Timestamp().to_representation(datetime(2030, 1, 31, 12, tzinfo=UTC)) == "2030-01-31T12:00:00Z"


# --- E-mail addresses


def test_email_field_normalises_the_address() -> None:
    assert accepted(EmailAddress(), "Ann.Lee@EXAMPLE.Com") == "Ann.Lee@example.com"
    for text in ("ann", "ann@localhost", "mar\u212a@example.com", "ann@\u2603.\ud800"):
        assert error(EmailAddress(), text) == "Send an e-mail address such as name@example.com, in ASCII before the @."
    assert error(EmailAddress(), "") == "This field may not be empty."


# --- Objects and URLs


def test_json_object_limits_bytes_and_depth() -> None:
    field = JsonObject(max_bytes=20, max_depth=3)

    assert accepted(field, {"a": {"b": [1, 2]}}) == {"a": {"b": [1, 2]}}
    assert accepted(field, {"abc": "ä" * 5}) == {"abc": "ä" * 5}
    assert error(field, {"abc": "ä" * 6}) == "Send at most 20 bytes of JSON."
    assert error(field, {"a": [{"b": []}]}) == "Nest at most 3 levels deep."


@pytest.mark.parametrize("number", [1e300, -1e300, 1e-300, 1.5e300])
def test_json_object_counts_numbers_as_they_are_returned(number: float) -> None:
    assert accepted(JsonObject(max_bytes=320), {"a": number}) == {"a": number}
    assert error(JsonObject(max_bytes=300), {"a": number}) == "Send at most 300 bytes of JSON."
    assert error(JsonObject(max_bytes=620), {"a": [number], "b": {"c": [number, 0.5]}}).startswith("Send at most 620")


def test_json_object_rejects_values_that_cannot_be_stored() -> None:
    assert error(JsonObject(), {"a": "\ud800"}) == 'Send a JSON object: {"name": value, ...}.'
    assert error(JsonObject(), {"a": 2**64}).startswith("Send a JSON object")


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com",
        "http://localhost:8080/v1?x=1&y=%20#top",
        "HTTPS://API.example.com./",
        "https://my_service:65535/",
        "http://10.0.0.1/",
        "http://[2001:db8::1]:8080/a",
        "http://[::ffff:10.0.0.1]/",
        "https://example.com?q=@:/",
        "https://example.com/a@b:c",
        "https://xn--mnchen-3ya.example/",
        "https://example.com/" + "a" * 2028,
    ],
)
def test_http_url_keeps_an_absolute_url(url: str) -> None:
    assert accepted(HttpUrl(), url) == url


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://b\u00fccher.example/a?b#c", "https://xn--bcher-kva.example/a?b#c"),
        ("HTTP://B\u00dcCHER.example:8443", "HTTP://xn--bcher-kva.example:8443"),
        ("https://api.\u65e5\u672c\u8a9e.jp./", "https://api.xn--wgv71a119e.jp./"),
        ("https://fa\u00df.example/", "https://xn--fa-hia.example/"),
    ],
)
def test_http_url_converts_host_to_a_labels(url: str, kept: str) -> None:
    assert accepted(HttpUrl(), url) == kept
    assert accepted(HttpUrl(), kept) == kept


@pytest.mark.parametrize(
    "url",
    [
        "example.com",
        "//example.com/",
        "/path",
        "https:/example.com",
        "https:example.com",
        "https://",
        "https:///path",
        "https://?q",
        "https://:443/",
        "https://.example.com/",
        "https://example..com/",
        "https://-example.com/",
        "ftp://example.com/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "https://user@example.com/",
        "https://user:pass@example.com/",
        "https://:@example.com/",
        "https://example.com@evil.test/",
        "https://example.com\\@evil.test/",
        "https://example.com%40evil.test/",
        "https://example.com:0x50/",
        "https://example.com:65536/",
        "https://example.com:-1/",
        "https://example.com:/",
        "https://exam ple.com/",
        "https://example.com/a b",
        " https://example.com/",
        "https://example.com/\n",
        "https://example.com/\r\nX: y",
        "https://exa\tmple.com/",
        "https://example.com/\0",
        "https://example.com/%zz",
        "https://example.com/<x>",
        'https://example.com/"',
        "https://example.com/ä",
        "https://\u00fc.example/\u00e4",
        "https://u@\u00fc.example/",
        "https://\u00fc..example/",
        "https://\u00fc.example:0x50/",
        "https://\u00fc.example\\@evil.test/",
        "https://\u00fc.example/\n",
        "https://\uff11\uff12\uff17.0.0.1/",
        "https://loca\uff4chost/",
        "https://\u2100.example/",
        "https://\u00fc_.example/",
        "https://example\u3002com/",
        "https://\u00fc\u3002com/",
        "https://[::1/",
        "https://[:::1]/",
        "https://[fe80::1%25eth0]/",
        "https://[1.2.3.4]/",
        f"https://{'d' * 64}.example/",
    ],
)
def test_http_url_rejects_everything_else(url: str) -> None:
    assert error(HttpUrl(), url).startswith("Send an absolute http(s) URL")


def test_http_url_limits_length_and_fragment() -> None:
    assert error(HttpUrl(), "https://example.com/" + "a" * 2029) == "Send at most 2048 characters."
    assert error(HttpUrl(), "") == "This field may not be empty."
    assert error(HttpUrl(allow_fragment=False), "https://example.com/#") == "Send the URL without its fragment (#...)."
    assert accepted(HttpUrl(allow_blank=True), "") == ""


def test_choice_accepts_exact_strings_only() -> None:
    field = Choice([("any", "Any of them"), ("all", "All of them")])

    assert accepted(field, "all") == "all"
    assert error(field, "ALL") == "Send one of: any, all."
    assert error(field, "") == "Send one of: any, all."
    assert accepted(Choice(["a"], allow_blank=True), "") == ""


# --- As parts of serializers


def test_requests_do_not_share_fields() -> None:
    class Shape(serializers.Serializer[Any]):
        name = Text(source="full_name", max_length=5)
        tags = serializers.ListField(child=Text(max_length=2), max_length=2)

    one, other = Shape(data={"name": "Ann", "tags": ["a", "b"]}), Shape(data={"name": "Ann Lee", "tags": ["abc"]})

    assert one.is_valid()
    assert not other.is_valid()
    assert one.validated_data == {"full_name": "Ann", "tags": ["a", "b"]}
    assert other.errors == {"name": ["Send at most 5 characters."], "tags": {0: ["Send at most 2 characters."]}}
    assert one.fields["name"] is not other.fields["name"]
    assert one.fields["name"].parent is one
    assert one.fields["name"].label == "Name"


def test_serializer_can_change_its_own_field() -> None:
    class Shape(serializers.Serializer[Any]):
        name = Text()

    def never(value: str) -> None:
        raise serializers.ValidationError(f"Never {value}.")

    changed, other = Shape(data={"name": "Ann"}), Shape(data={"name": "Ann"})
    changed.fields["name"].validators.append(never)

    assert not changed.is_valid()
    assert other.is_valid()


def schema_of(field: Field) -> dict[str, Any]:
    shape = _shape(field)()
    generator: Any = AutoSchema()
    schema: dict[str, Any] = generator._map_serializer_field(shape.fields["field"], "request")
    generator._insert_field_validators(shape.fields["field"], schema)
    return schema


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        (Text(), "line", ""),
        (Text(), "line", "two\nlines"),
        (Text(trim=True), " a", "  "),
        (Text(single_line=False), "two\nlines", "a\rb"),
        (Text(max_length=3), "abc", "abcd"),
        (Text(allow_blank=True), "", "\n"),
        (Text(allow_blank=True, trim=True), " ", "a\nb"),
        (HttpUrl(allow_blank=True), "", "example.com"),
        (Text(allow_null=True), None, 1),
        (Boolean(), True, 1),
        (Integer(), 2**63 - 1, 2**63),
        (Integer(min_value=1, max_value=5), 5, 6),
        (Identifier(), ID, 5),
        (JsonObject(), {"a": 1}, []),
        (Timestamp(), "2030-01-31T12:00:00Z", 5),
        (EmailAddress(), "a@example.com", "a" * 255),
        (HttpUrl(), "https://example.com:8080/a?b#c", "https://u@example.com/"),
        (HttpUrl(), "https://b\u00fccher.example:8080/", "https://b\u00fccher.example/\u00fc"),
        (HttpUrl(), "https://\u65e5\u672c.jp", "https://u@b\u00fccher.example"),
        (HttpUrl(allow_fragment=False), "https://example.com/", "https://example.com/#c"),
        (HttpUrl(max_length=22), "https://example.com/", "https://example.com/abc"),
        (Choice(["a", "b"]), "a", "c"),
        (Choice(["a", "b"], allow_null=True), None, "c"),
    ],
)
def test_schema_agrees_with_the_field(field: Field, good: Any, bad: Any) -> None:
    checker = jsonschema_rs.Draft202012Validator(schema_of(field))

    assert checker.is_valid(good)
    accepted(field, good)  # raises when it is rejected
    assert not checker.is_valid(bad)
    assert error(field, bad)


def test_schema_names_formats() -> None:
    formats = {
        type(field).__name__: schema_of(field).get("format")
        for field in (Identifier(), Timestamp(), EmailAddress(), HttpUrl())
    }

    assert formats == {"Identifier": "uuid", "Timestamp": "date-time", "EmailAddress": "email", "HttpUrl": "iri"}


def test_schema_describes_query_fields_by_meaning() -> None:
    assert schema_of(QueryInteger(min_value=1, max_value=100)) == {"type": "integer", "minimum": 1, "maximum": 100}
    assert "maximum" not in schema_of(QueryInteger(min_value=1, max_value=100, clamp=True))
    assert schema_of(QueryBoolean())["type"] == "boolean"

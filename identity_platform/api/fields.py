"""Serializer fields that accept only values of their own type. Nothing is coerced or repaired.

DRF's own fields read `true` as 1, 7 as "7", Arabic digits as numbers and "yes" as true: each of them a second spelling
of a value, and a way around checks that know only the first.
"""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from django.core.validators import ProhibitNullCharactersValidator
from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.validators import ProhibitSurrogateCharactersValidator

from identity_platform.api.email_addresses import LONGEST_ADDRESS, AddressInvalid, email_address

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

LONGEST_IP_ADDRESS = 45
SMALLEST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1

# C0 and C1 controls, DEL, the separators that Unicode calls line breaks, and surrogates, which PostgreSQL cannot store.
NOT_IN_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NOT_IN_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# The same two as ECMA 262 writes them, for the API document.
_LINE_CONTROLS = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
_TEXT_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f"
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DIGITS = re.compile(r"[0-9]+")
_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)


class FieldOptions(TypedDict, total=False):
    required: bool
    allow_null: bool
    read_only: bool
    default: Any
    source: str
    help_text: StrOrPromise
    error_messages: dict[str, StrOrPromise]


class TextOptions(FieldOptions, total=False):
    allow_blank: bool
    min_length: int
    max_length: int | None


class NullIsAbsent(serializers.Field[Any, Any, Any, Any]):
    """Treat null for an optional field of a body as if the field were absent.

    A field with `allow_null=True` keeps null as a value of its own. Its `help_text` says what null means there.
    """

    def validate_empty_values(self, data: object) -> tuple[bool, object]:
        """Handle absent and null values before the value itself is validated."""
        absent = data is None and not self.required and not self.allow_null
        return super().validate_empty_values(empty if absent else data)


class StrictField(NullIsAbsent):
    """Base of all fields here. It comes before the DRF field among the base classes."""

    default_error_messages = {
        "required": "This field is required.",
        "null": "This field may not be null.",
    }
    # DRF reads a boolean that an HTML form omits as false. Here it stays absent.
    default_empty_html = empty

    def __deepcopy__(self, memo: object) -> Self:
        # A serializer copies all its fields for every request, and DRF runs their constructors again for that. Nothing
        # in these fields changes after construction but the binding, which the copy does not take over.
        twin = object.__new__(type(self))
        state, options = self.__dict__, self.__dict__["_kwargs"]
        twin.__dict__.update(
            state,
            field_name=None,
            parent=None,
            source=options.get("source"),
            label=options.get("label"),
            _validators=list(self.validators),
        )
        return twin

    def openapi(self) -> dict[str, object]:
        """Return the JSON Schema of accepted values (OpenAPI 3.1)."""
        raise NotImplementedError


class Text(StrictField, serializers.CharField):
    """A string. One line unless `single_line=False`, which allows \\n and \\t; trimmed only when `trim=True`."""

    default_error_messages = {
        "invalid": "Send a string.",
        "blank": "This field may not be empty.",
        "max_length": "Send at most {max_length} characters.",
        "min_length": "Send at least {min_length} characters.",
        "line": "Send one line without control characters.",
        "control": "Control characters other than line feed and tab are not allowed.",
    }

    def __init__(self, *, trim: bool = False, single_line: bool = True, **options: Unpack[TextOptions]) -> None:
        self.single_line = single_line
        super().__init__(trim_whitespace=trim, **options)
        # Covered by the patterns above. DRF's validators check every character in Python.
        self.validators = [
            validator
            for validator in self.validators
            if not isinstance(validator, ProhibitNullCharactersValidator | ProhibitSurrogateCharactersValidator)
        ]

    def run_validation(self, data: object = empty) -> str | None:
        if isinstance(data, str):
            if self.trim_whitespace:
                data = data.strip()
            if not data:
                if not self.allow_blank:
                    self.fail("blank")
                return ""
        # Skip CharField's own method, which converts any value to text to test whether it is blank.
        value: str | None = serializers.Field.run_validation(self, data)
        return value

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        if self.single_line and NOT_IN_A_LINE.search(data):
            self.fail("line")
        if not self.single_line and _NOT_IN_TEXT.search(data):
            self.fail("control")
        return data

    def openapi(self) -> dict[str, object]:
        controls = _LINE_CONTROLS if self.single_line else _TEXT_CONTROLS
        pattern = rf"^[^{controls}]*$"
        if self.trim_whitespace and not self.allow_blank:
            pattern = rf"^[^{controls}]*[^\s{controls}][^{controls}]*$"
        # If blank is allowed, drf-spectacular adds "" as an alternative, which this pattern must not match too.
        return {"type": "string", "minLength": 1, "pattern": pattern}


class Boolean(StrictField, serializers.BooleanField):
    """JSON true or false."""

    default_error_messages = {"invalid": "Send true or false."}

    def to_internal_value(self, data: object) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid")
        return data

    def openapi(self) -> dict[str, object]:
        return {"type": "boolean"}


class QueryBoolean(Boolean):
    """The text true, false, 1 or 0 in a query string, in any case."""

    default_error_messages = {"invalid": "Send true, false, 1 or 0."}

    def to_internal_value(self, data: object) -> bool:
        value = data.lower() if isinstance(data, str) else None
        if value not in ("true", "false", "1", "0"):
            self.fail("invalid")
        return value in ("true", "1")


class Integer(StrictField, serializers.IntegerField):
    """A JSON integer of at most 64 bits."""

    default_error_messages = {
        "invalid": "Send a whole number.",
        "max_value": "Send at most {max_value}.",
        "min_value": "Send at least {min_value}.",
    }

    def __init__(
        self,
        *,
        min_value: int | None = SMALLEST_INTEGER,
        max_value: int | None = LARGEST_INTEGER,
        **options: Unpack[FieldOptions],
    ) -> None:
        super().__init__(min_value=min_value, max_value=max_value, **options)

    def to_internal_value(self, data: object) -> int:
        if type(data) is not int:  # a bool is an int to isinstance
            self.fail("invalid")
        return data

    def openapi(self) -> dict[str, object]:
        bounds = {"minimum": self.min_value, "maximum": self.max_value}
        return {"type": "integer"} | {name: bound for name, bound in bounds.items() if bound is not None}


class QueryInteger(Integer):
    """A whole number in ASCII digits in a query string.

    With `clamp`, a number above `max_value` counts as `max_value`: a page size of 1000 is 100, and a page past the end is
    empty.
    """

    default_error_messages = {"invalid": "Send a whole number in the digits 0 to 9."}

    def __init__(
        self,
        *,
        min_value: int = 0,
        max_value: int = LARGEST_INTEGER,
        clamp: bool = False,
        **options: Unpack[FieldOptions],
    ) -> None:
        self.ceiling = max_value
        self.clamp = clamp
        super().__init__(min_value=min_value, max_value=None if clamp else max_value, **options)

    def to_internal_value(self, data: object) -> int:
        if not isinstance(data, str) or not _DIGITS.fullmatch(data):
            self.fail("invalid")
        # Python converts at most 4,300 digits. All numbers beyond 64 bits are treated alike.
        significant = data.lstrip("0")
        number = int(significant or "0") if len(significant) < 20 else LARGEST_INTEGER + 1
        return min(number, self.ceiling) if self.clamp else number


class Identifier(StrictField, serializers.UUIDField):
    """A UUID of 36 characters, in either case. Its value is a `uuid.UUID`."""

    default_error_messages = {
        "invalid": "Send a UUID in its form of 36 characters, such as 123e4567-e89b-42d3-a456-426614174000."
    }

    def to_internal_value(self, data: object) -> uuid.UUID:
        if not isinstance(data, str) or not _UUID.fullmatch(data):
            self.fail("invalid")
        return uuid.UUID(data)

    def openapi(self) -> dict[str, object]:
        return {"type": "string", "format": "uuid"}


class IpAddress(Text):
    """An IPv4 or IPv6 address, without port and zone, in its shortest form."""

    default_error_messages = {"invalid": "Send an IPv4 or IPv6 address such as 192.0.2.1 or 2001:db8::1."}

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str) or "%" in data or len(data) > LONGEST_IP_ADDRESS:
            self.fail("invalid")
        try:
            address = ipaddress.ip_address(data)
        except ValueError:
            self.fail("invalid")
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return str(mapped or address)

    def openapi(self) -> dict[str, object]:
        return {
            "type": "string",
            "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}],
            "maxLength": LONGEST_IP_ADDRESS,
        }


class EmailAddress(Text):
    """An e-mail address, normalised by `email_address`."""

    default_error_messages = {"invalid": "Send an e-mail address such as name@example.com, in ASCII before the @."}

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        try:
            return email_address(data)
        except AddressInvalid:
            self.fail("invalid")

    def openapi(self) -> dict[str, object]:
        return {"type": "string", "format": "email", "maxLength": LONGEST_ADDRESS}


class Timestamp(StrictField, serializers.DateTimeField):
    """A point in time (RFC 3339: ISO 8601 with an offset); its value is an aware `datetime` in UTC."""

    default_error_messages = {
        "invalid": "Send a time with its offset, such as 2030-01-31T12:00:00Z (in a query write + as %2B).",
        "overflow": "Send a time between the years 1 and 9999.",
    }

    def to_internal_value(self, data: object) -> datetime:
        if not isinstance(data, str) or not _RFC_3339.fullmatch(data):
            self.fail("invalid")
        try:
            return datetime.fromisoformat(data.upper()).astimezone(UTC)
        except ValueError:
            self.fail("invalid")
        except OverflowError:
            self.fail("overflow")

    def openapi(self) -> dict[str, object]:
        return {"type": "string", "format": "date-time"}


class Choice(StrictField, serializers.ChoiceField):
    """One of the given strings, exactly."""

    default_error_messages = {"invalid_choice": "Send one of: {allowed}."}

    def __init__(self, choices: Sequence[str] | Sequence[tuple[str, str]], **options: Unpack[FieldOptions]) -> None:
        super().__init__(choices=choices, **options)

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str) or (data not in self.choices and not (data == "" and self.allow_blank)):
            self.fail("invalid_choice", allowed=", ".join(self.choices))
        return data

    def openapi(self) -> dict[str, object]:
        values: list[str | None] = [str(choice) for choice in self.choices]
        if self.allow_blank and "" not in values:
            values.append("")
        if self.allow_null:
            values.append(None)
        return {"type": "string", "enum": values}


class QueryChoice(Choice):
    """One of the given lower-case strings in a query, in any case."""

    def to_internal_value(self, data: object) -> str:
        return super().to_internal_value(data.lower() if isinstance(data, str) else data)


class Items(StrictField, serializers.ListField):
    """A JSON array of at most `most` entries, each validated by the field `of`."""

    default_error_messages = {
        "not_a_list": "Send a list.",
        "empty": "Send at least one entry.",
        "max_length": "Send at most {max_length} entries.",
    }

    def __init__(
        self, of: StrictField, *, most: int, allow_empty: bool = True, **options: Unpack[FieldOptions]
    ) -> None:
        self.of = of
        super().__init__(child=of, max_length=most, allow_empty=allow_empty, **options)

    def run_validation(self, data: object = empty) -> Any:
        # DRF checks the length last. Here a list that is too long is rejected before its entries are read.
        if isinstance(data, list) and self.max_length is not None and len(data) > self.max_length:
            self.fail("max_length", max_length=self.max_length)
        return super().run_validation(data)

    def openapi(self) -> dict[str, object]:
        entry = self.of.openapi()
        if (longest := getattr(self.of, "max_length", None)) is not None:
            entry = {**entry, "maxLength": longest}
        least = {} if self.allow_empty else {"minItems": 1}
        return {"type": "array", "items": entry, "maxItems": self.max_length, **least}


def fields_of(shape: type[serializers.Serializer[object]], row: object, **overrides: object) -> dict[str, object]:
    """Return the fields that `shape` declares: those in `overrides`, else the row's attributes of the same names.

    The renderer formats the values. The serializer's own `data` would do that here, field by field, at many times the cost.
    """
    return {name: overrides[name] if name in overrides else getattr(row, name) for name in shape._declared_fields}

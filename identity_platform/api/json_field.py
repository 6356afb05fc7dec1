"""JSON objects of free form in bodies, bounded in size and depth."""

from typing import Unpack

import orjson

from identity_platform.api.fields import FieldOptions, StrictField


def _zeros(number: float) -> int:
    """Return how many digits longer the number is when PostgreSQL returns it: jsonb has no exponents, so thousands of
    1e300 in one object would be megabytes in every response."""
    _, _, exponent = repr(number).partition("e")
    return abs(int(exponent or 0))


class JsonObject(StrictField):
    """A JSON object of free form, bounded in bytes (as UTF-8 JSON without blanks, its numbers without exponents) and in
    depth (itself is level 1)."""

    default_error_messages = {
        "invalid": 'Send a JSON object: {{"name": value, ...}}.',
        "max_bytes": "Send at most {max_bytes} bytes of JSON.",
        "max_depth": "Nest at most {max_depth} levels deep.",
    }

    def __init__(self, *, max_bytes: int = 16_384, max_depth: int = 8, **options: Unpack[FieldOptions]) -> None:
        self.max_bytes = max_bytes
        self.max_depth = max_depth
        super().__init__(**options)

    def to_internal_value(self, data: object) -> dict[str, object]:
        if not isinstance(data, dict):
            self.fail("invalid")
        level: list[dict[str, object] | list[object]] = [data]
        zeros = 0
        for _ in range(self.max_depth):
            values = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
            zeros += sum(_zeros(value) for value in values if isinstance(value, float))
            level = [value for value in values if isinstance(value, dict | list)]
            if not level:
                break
        else:
            self.fail("max_depth", max_depth=self.max_depth)
        try:
            size = len(orjson.dumps(data))
        except TypeError:  # lone surrogates or numbers beyond 64 bits, which the strict parser rejects
            self.fail("invalid")
        if size + zeros > self.max_bytes:
            self.fail("max_bytes", max_bytes=self.max_bytes)
        return data

    def to_representation(self, value: dict[str, object]) -> dict[str, object]:
        return value

    def openapi(self) -> dict[str, object]:
        return {"type": "object", "additionalProperties": {}}

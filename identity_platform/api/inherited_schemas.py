"""Schemas of responses that have every field of another one refer to it, so the API document states each field once."""

from typing import Any, Final

Schema = dict[str, Any]

# Fewer fields can be the same by chance.
FEWEST: Final = 6


def inherit(schemas: dict[str, Schema]) -> None:
    """Replace the fields that a schema shares with its base by `allOf` with a reference to the base."""
    responses = {name: schema for name, schema in schemas.items() if not name.endswith("Request")}
    for name, schema in responses.items():
        bases = [other for other, base in responses.items() if _is_base(base, schema)]
        if bases:
            closest = max(bases, key=lambda other: len(responses[other]["properties"]))
            schemas[name] = _extended(closest, responses[closest], schema)


def _is_base(base: Schema, schema: Schema) -> bool:
    theirs, own = base.get("properties", {}), schema.get("properties", {})
    return FEWEST <= len(theirs) < len(own) and theirs.items() <= own.items() and _required(base) <= _required(schema)


def _required(schema: Schema) -> set[str]:
    return set(schema.get("required", ()))


def _extended(name: str, base: Schema, schema: Schema) -> Schema:
    own: Schema = {key: field for key, field in schema["properties"].items() if key not in base["properties"]}
    required = sorted(_required(schema) - _required(base))
    added = {"type": "object", "properties": own, **({"required": required} if required else {})}
    kept = {key: value for key, value in schema.items() if key not in added}
    return {**kept, "allOf": [{"$ref": f"#/components/schemas/{name}"}, added]}

"""Schemas with fields of another one refer to it, so that the API document states each field once."""

import re
from typing import Any, Final

from identity_platform.api.app_parts import api_part

Schema = dict[str, Any]

# Fewer fields can be the same by chance.
FEWEST: Final = 4
# The body of an update, beside that of creating the same record.
_CHANGES: Final = re.compile("ChangesRequest$")


def inherit(schemas: dict[str, Schema]) -> None:
    """Replace the fields that a schema has in common with its base by `allOf` with a reference to the base."""
    _extract_bases(schemas)
    for schemas_of_kind in _kinds(schemas):
        for name, schema in schemas_of_kind.items():
            bases = [other for other, base in schemas_of_kind.items() if _is_base(base, schema)]
            if bases:
                closest = max(
                    bases,
                    key=lambda other: (other in api_part().base_schemas, len(schemas_of_kind[other]["properties"])),
                )
                schemas[name] = _extended(closest, schemas_of_kind[closest], schema)


def _kinds(schemas: dict[str, Schema]) -> tuple[dict[str, Schema], dict[str, Schema]]:
    """Return the schemas of bodies and those of responses."""
    bodies = {name: schema for name, schema in schemas.items() if name.endswith(("Request", "Fields"))}
    return bodies, {name: schema for name, schema in schemas.items() if name not in bodies}


def _extract_bases(schemas: dict[str, Schema]) -> None:
    """Add those that apps state, and give the bodies that create and update a record a base of the fields that both have."""
    for name, (owner, fields) in api_part().base_schemas.items():
        schemas[name] = {"type": "object", "properties": {key: schemas[owner]["properties"][key] for key in fields}}
    for name in [name for name in schemas if _CHANGES.search(name)]:
        create = schemas.get(_CHANGES.sub("Request", name), {}).get("properties", {})
        update = schemas[name].get("properties", {})
        common = {key: field for key, field in create.items() if update.get(key) == field}
        if len(common) >= FEWEST:
            base_name, base = _CHANGES.sub("Fields", name), {"type": "object", "properties": common}
            schemas[base_name] = base
            for each in (name, _CHANGES.sub("Request", name)):
                schemas[each] = _extended(base_name, base, schemas[each])


def _is_base(base: Schema, schema: Schema) -> bool:
    base_properties, properties = base.get("properties", {}), schema.get("properties", {})
    return (
        FEWEST <= len(base_properties) < len(properties)
        and base_properties.items() <= properties.items()
        and _required(base) <= _required(schema)
    )


def _required(schema: Schema) -> set[str]:
    return set(schema.get("required", ()))


def _extended(name: str, base: Schema, schema: Schema) -> Schema:
    properties: Schema = {key: field for key, field in schema["properties"].items() if key not in base["properties"]}
    required = sorted(_required(schema) - _required(base))
    added = {"type": "object", "properties": properties, **({"required": required} if required else {})}
    unshared = {key: value for key, value in schema.items() if key not in (*added, "required")}
    return {**unshared, "allOf": [{"$ref": f"#/components/schemas/{name}"}, added]}

"""Examples of the API document, composed from the values and bodies that the apps state."""

from typing import Any

from identity_platform.api.app_parts import api_part

# Formats from which every tool makes up a realistic value.
_EXPLAIN = ("uuid", "date-time")


def add_examples(document: dict[str, Any]) -> None:
    """Add a whole example to each request body, and one to each field of a response that its format does not explain.

    Tools show responses as composed from the examples of their fields: responses share schemas, so whole ones would repeat
    the same values many times.
    """
    schemas = document["components"]["schemas"]
    for operations in document["paths"].values():
        for operation in operations.values():
            for media in operation.get("requestBody", {}).get("content", {}).values():
                media["example"] = _body(operation["operationId"], media["schema"], schemas)
    for name, schema in schemas.items():
        if not name.endswith("Request"):
            _add_to_fields(name, schema)


def _body(operation_id: str, schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the required fields with their values, and the fields that its app states for the operation."""
    name = schema["$ref"].rpartition("/")[2]
    # Of bodies that need one of several fields: those of the first choice.
    shape = schemas[name]
    if "anyOf" in shape:
        shape = schemas[shape["anyOf"][0]["$ref"].rpartition("/")[2]]
    values = {field: _value(name, field) for field in shape.get("required", [])}
    return {**values, **api_part().example_bodies.get(operation_id, {})}


def _add_to_fields(name: str, schema: dict[str, Any]) -> None:
    for field, shape in schema.get("properties", {}).items():
        value = _value(name, field)
        if value is not None and _needs_example(shape):
            shape["examples"] = [value]
        else:
            _add_to_fields(name, shape)


def _value(schema: str, field: str) -> Any:
    values = api_part().example_values
    return values.get(f"{schema}.{field}", values.get(field))


def _needs_example(shape: dict[str, Any]) -> bool:
    """Return whether enum, format, type and references do not say enough to make up a value."""
    choices = [shape, shape.get("items", {}), *shape.get("oneOf", []), *shape.get("allOf", [])]
    explains = shape.get("format") in _EXPLAIN or any({"enum", "const", "$ref"} & choice.keys() for choice in choices)
    return not explains and "boolean" not in shape.get("type", "") and "required" not in shape

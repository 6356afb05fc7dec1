"""The examples of the document are valid, realistic, and there for every body."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from tests.openapi.test_optional_fields import document

CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2026]")
# What a tool makes up from the format alone is as good as an example.
BY_FORMAT = {"uuid": "3f1c9a52-77de-4f0b-8c1f-0a52b6e9d014", "date-time": "2026-03-02T09:30:00Z"}


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema behind a reference, with the keywords beside it."""
    if "$ref" in schema:
        return resolved(document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if choices := [*schema.get("oneOf", []), *schema.get("anyOf", [])]:
        return {**resolved(choices[0]), **schema}
    parts = [resolved(part) for part in schema.get("allOf", [])]
    properties = {name: field for part in parts for name, field in part.get("properties", {}).items()}
    return {
        **{key: part[key] for part in parts for key in part},
        **({"properties": properties} if parts else {}),
        **schema,
    }


def composed(schema: dict[str, Any], path: str) -> Any:
    """The example that a tool shows: composed from those of the fields, else made up from enum, format or type."""
    schema = resolved(schema)
    if "const" in schema:
        return schema["const"]
    if "examples" in schema or "enum" in schema:
        return schema.get("examples", schema.get("enum"))[0]
    match schema.get("type"):
        case "object":
            return {name: composed(field, f"{path}.{name}") for name, field in schema.get("properties", {}).items()}
        case "array" if schema["items"]:
            return [composed(schema["items"], f"{path}[]")]
        case "boolean":
            return True
    return BY_FORMAT.get(schema.get("format", ""), f"no example: {path}")


def errors_of(schema: dict[str, Any], example: Any) -> list[str]:
    whole = {**schema, "components": document()["components"]}
    validator = Draft202012Validator(whole, validate_formats=True)
    return [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(example)]


def requests() -> Iterator[Any]:
    for path in document()["paths"].values():
        for operation in path.values():
            for media in operation.get("requestBody", {}).get("content", {}).values():
                yield pytest.param(media["schema"], media["example"], id=operation["operationId"])


def responses() -> Iterator[Any]:
    for path in document()["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                for media in response.get("content", {}).values() if status.startswith("2") else ():
                    yield pytest.param(media["schema"], id=operation["operationId"])


@pytest.mark.parametrize(("schema", "example"), list(requests()))
def test_request_examples_are_valid_and_readable(schema: dict[str, Any], example: dict[str, Any]) -> None:
    assert errors_of(schema, example) == []
    assert not CONTROLS.search(json.dumps(example, ensure_ascii=False))
    # An unknown field is ignored by the server, and no error of the schema.
    assert set(example) <= set(resolved(schema)["properties"])


@pytest.mark.parametrize("schema", list(responses()))
def test_response_examples_are_complete_and_valid(schema: dict[str, Any]) -> None:
    example = composed(schema, "")
    assert "no example" not in json.dumps(example)
    assert errors_of(schema, example) == []
    assert not CONTROLS.search(json.dumps(example, ensure_ascii=False))

"""Every operation, parameter and field of the document has a description that says something."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from identity_platform.api.app_parts import api_part
from tests.openapi.test_optional_fields import document

SHORTEST = 8


def operations() -> list[dict[str, Any]]:
    return [operation for path in document()["paths"].values() for operation in path.values()]


def resolved(content: dict[str, Any]) -> dict[str, Any]:
    """The component that a reference names, or else the content itself."""
    if "$ref" not in content:
        return content
    _, kind, name = content["$ref"].rsplit("/", 2)
    return dict(document()["components"][kind][name])


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The properties of a schema and of the objects inside it, each with its path."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", {**resolved(field), **field}
        # What a setting means is said where it is set.
        if name != "effective":
            yield from fields(field, f"{path}.{name}")
    for inner in (*schema.get("oneOf", []), *schema.get("allOf", []), *schema.get("anyOf", [])):
        yield from fields(inner, path)
    if "items" in schema:
        yield from fields(schema["items"], path)


def described() -> Iterator[tuple[str, dict[str, Any]]]:
    """Fields, parameters and operations, each with a name for the test's message."""
    for name, schema in document()["components"]["schemas"].items():
        # Errors of one kind only state their codes: their fields are described once.
        if not name.endswith("Error"):
            yield from fields(schema, name)
    for operation in operations():
        yield operation["operationId"], operation
        for parameter in map(resolved, operation.get("parameters", [])):
            yield f"{operation['operationId']}: {parameter['name']}", parameter


def test_operations_parameters_and_fields_have_descriptions() -> None:
    found = list(described())
    assert len(found) > 1000
    assert [name for name, what in found if len(what.get("description", "")) < SHORTEST] == []


def test_summaries_are_short_and_unique() -> None:
    summaries = [operation["summary"] for operation in operations()]
    assert [text for text in summaries if not SHORTEST <= len(text) <= 80] == []
    assert [text for text, number in Counter(summaries).items() if number > 1] == []


def test_operations_say_who_may_call_them() -> None:
    said = ("Needs no access token", "Works without an access token", "Requires ")
    assert [each["operationId"] for each in operations() if not any(text in each["description"] for text in said)] == []


def test_operations_with_a_sensitive_action_name_the_step_up() -> None:
    for operation in operations():
        is_said = "May ask for a step-up." in operation["description"]
        assert is_said == ("x-assurance" in operation), operation["operationId"]


def test_document_says_how_to_step_up() -> None:
    assert "returns 401 `insufficient_user_authentication`" in document()["info"]["description"]


def test_every_shared_description_is_used() -> None:
    used = {(re.split(r"\.|: ", name)[-1], what.get("description")) for name, what in described()}
    assert set(api_part().field_descriptions.items()) - used == set()

"""Null for an optional field of a body counts as absent, at every operation of the document."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from identity_platform.api.app_parts import is_oauth
from tests.openapi.document import document, fields_of, resolved
from tests.world import Api, TestTenant, sign_in_admin

USERINFO = "/t/{slug}/userinfo"


def optional_fields(schema: dict[str, Any]) -> dict[str, Any]:
    found = fields_of(schema)
    properties = found.get("properties", {})
    return {name: resolved(field) for name, field in properties.items() if name not in found.get("required", [])}


def operations() -> Iterator[Any]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            for form in operation.get("requestBody", {}).get("content", {}).values():
                if optional_fields(form["schema"]):
                    yield pytest.param(method, path, form["schema"], id=f"{method} {path}")


def nulls(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Bodies with null for each optional field, and with objects that hold nothing but such fields."""
    optional = optional_fields(schema)
    yield dict.fromkeys(optional)
    for name, field in optional.items():
        for inner in nulls(field):
            if inner:
                yield {name: inner}


@pytest.mark.parametrize(("method", "path", "schema"), list(operations()))
def test_null_counts_as_absent(method: str, path: str, schema: dict[str, Any], tenant: TestTenant) -> None:
    place = path.replace("{tenant_id}", str(tenant.id))
    while "{" in place:
        place = place.replace(place[place.index("{") : place.index("}") + 1], str(uuid4()))

    def result(body: dict[str, Any]) -> Any:
        # A token of its own each time: signing out is among the operations.
        token = sign_in_admin(tenant.admin.username)["access_token"]
        response = Api(token=token).call(method, place, body)
        return response.status_code, response.json().get("code"), response.json().get("details")

    for body in nulls(schema):
        absent = {name: {} for name, value in body.items() if value is not None}
        assert result(body) == result(absent), body


def test_schema_allows_null_for_optional_fields() -> None:
    bodies = [case.values for case in operations()]
    # Forms have no null, and the document states the OAuth endpoints and userinfo as forms.
    json_bodies = [schema for _, path, schema in bodies if not (is_oauth(str(path)) or path == USERINFO)]
    assert json_bodies
    for schema in json_bodies:
        for name, field in optional_fields(schema).items():
            assert "null" in field.get("type", []) or {"type": "null"} in field["oneOf"], name


def test_update_with_null_changes_nothing(tenant: TestTenant) -> None:
    body = {"name": f"null-{uuid4()}", "type": "mail", "base_url": "https://a.example", "metadata": {"kept": True}}
    made = tenant.api.post("/exsvc/api/v1/services", body).json()
    changed = tenant.api.put(f"/exsvc/api/v1/services/{made['id']}", dict.fromkeys(body)).json()
    assert {**changed, "updated_at": None} == {**made, "updated_at": None}

"""The parts of the API document, one for each audience."""

import gzip
from collections.abc import Iterator
from typing import Any

import pytest

from tests.openapi.document import PARTS, document, part
from tests.world import Api


def operations(content: dict[str, Any]) -> dict[tuple[str, str], Any]:
    return {(path, method): each for path, methods in content["paths"].items() for method, each in methods.items()}


def references(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        if isinstance(target := content.get("$ref"), str):
            yield target
        for inner in content.values():
            yield from references(inner)
    elif isinstance(content, list):
        for inner in content:
            yield from references(inner)


def test_parts_together_are_the_whole() -> None:
    parts = [part(name) for name in PARTS]
    assert sum(len(operations(each)) for each in parts) == len(operations(document()))
    assert {key: value for each in parts for key, value in operations(each).items()} == operations(document())
    for kind, components in document()["components"].items():
        assert {name: found for each in parts for name, found in each["components"][kind].items()} == components
    for field in ("tags", "x-tagGroups"):
        assert [item for each in parts for item in each[field]] == document()[field]


@pytest.mark.parametrize("name", PARTS)
def test_part_has_the_components_that_it_uses(name: str) -> None:
    components = {
        f"#/components/{kind}/{each}"
        for kind, named in part(name)["components"].items()
        for each in named
        if kind != "securitySchemes"
    }
    assert set(references(part(name))) == components
    schemes = {
        scheme for each in operations(part(name)).values() for required in each["security"] for scheme in required
    }
    assert schemes == set(part(name)["components"]["securitySchemes"])


def test_parts_are_for_their_audiences() -> None:
    ids = {name: {each["operationId"] for each in operations(part(name)).values()} for name in PARTS}
    assert ids["applications"] >= {"login", "registerEndUser", "acceptInvitation", "requestToken", "listFactors"}
    assert ids["management"] >= {
        "listEndUsers",
        "createInvitation",
        "resetFactors",
        "issueEnrollmentPass",
        "createClient",
    }


@pytest.mark.parametrize("name", PARTS)
def test_part_is_served_as_the_whole_is(api: Api, name: str) -> None:
    plain = api.get(f"/schema/{name}/")
    packed = api.get(f"/schema/{name}/", headers={"Accept-Encoding": "gzip"})
    assert gzip.decompress(packed.content) == plain.content
    assert plain.json() == part(name)
    whole = api.get("/schema/").headers
    assert {**plain.headers, "Content-Disposition": "", "X-Request-ID": "", "Content-Length": ""} == {
        **whole,
        "Content-Disposition": "",
        "X-Request-ID": "",
        "Content-Length": "",
    }
    assert api.get(f"/schema/{name}").headers["Location"] == f"/schema/{name}/"
    assert api.post(f"/schema/{name}/", {}).status_code == 405


def test_unknown_part_returns_404(api: Api) -> None:
    response = api.get("/schema/billing/")
    assert (response.status_code, response.json()["code"]) == (404, "path_not_found")

"""The operations of the API document, and how a request to one of them is drawn."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from urllib.parse import urlencode

from tests.openapi.document import document, fields_of, resolved
from tests.properties.knowledge import Knowledge
from tests.userflow.sessions.clients import FORM
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION

JSON: Final = "application/json"
_PERMISSION = re.compile(r"`([a-z]+:[a-z_]+)`")
_SLOT = re.compile(r"{(\w+)}")
# How often an operation's optional fields are sent: mostly few, since one wrong field rejects the request.
_OPTIONAL_FIELDS: Final = (0, 1, 1, 2, 3)
# Any number, of which the rest by the length of a list counts: what is drawn does not depend on what the attacker knows.
ANY: Final = 60
Draw = Callable[[int], int]


@dataclass(frozen=True)
class Operation:
    """A method and a path of the document, and what the document says of a request to it."""

    method: str
    path: str
    id: str
    media_type: str
    fields: Mapping[str, Any]
    required: tuple[str, ...]
    example: Mapping[str, Any]
    query: Mapping[str, Any]
    # What its description names: any of them may open it.
    permissions: frozenset[str]
    takes_anonymous: bool
    takes_client: bool
    # It is in the table of actions that need an assurance: what it changes matters.
    is_sensitive: bool

    def __str__(self) -> str:
        return f"{self.method.upper()} {self.path}"

    @property
    def changes(self) -> bool:
        return self.method != "get"


@dataclass
class Request:
    """One request of the attacker; it can be sent again."""

    operation: Operation
    path: str
    body: dict[str, Any] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)

    @property
    def raw(self) -> bytes | None:
        return urlencode(self.body, doseq=True).encode() if self.operation.media_type == FORM else None


@cache
def operations() -> tuple[Operation, ...]:
    """Return all operations, in the order of the document."""
    return tuple(
        _read(method, path, content)
        for path, methods in document()["paths"].items()
        for method, content in methods.items()
        if method in ("get", "post", "put", "patch", "delete")
    )


def _read(method: str, path: str, content: Mapping[str, Any]) -> Operation:
    media = content.get("requestBody", {}).get("content", {})
    media_type = JSON if JSON in media else next(iter(media), "")
    body = media.get(media_type, {})
    schema = fields_of(body["schema"]) if body else {}
    example = body.get("example", {})
    parameters = [_parameter(found) for found in content.get("parameters", [])]
    named = set(_PERMISSION.findall(content.get("description", ""))) & set(EVERY_PERMISSION)
    security = content.get("security", [])
    return Operation(
        method=method,
        path=path,
        id=content["operationId"],
        media_type=media_type,
        fields=schema.get("properties", {}),
        required=tuple(schema.get("required", ())),
        example=example if isinstance(example, dict) else {},
        query={found["name"]: found.get("schema", {}) for found in parameters if found.get("in") == "query"},
        permissions=frozenset(named),
        takes_anonymous=not security or {} in security,
        takes_client={"client": []} in security,
        is_sensitive=bool(content.get("x-assurance")),
    )


def _parameter(content: dict[str, Any]) -> dict[str, Any]:
    return resolved(content)


def draw_request(operation: Operation, draw: Draw, knowledge: Knowledge) -> Request:
    """Draw a request: the required fields or those of the document's example, some optional ones, and values that fit.

    `draw(n)` returns a number from 0 to n - 1; the simplest request is drawn by zeros.
    """
    path = _SLOT.sub(
        lambda slot: str(_pick(draw, knowledge.for_field(slot[1], operation.path) or ["-"])), operation.path
    )
    names = list(operation.required)
    if draw(2):
        names += [name for name in operation.example if name in operation.fields and name not in names]
    optional = [name for name in operation.fields if name not in names]
    names += _draw_names(optional, _OPTIONAL_FIELDS[draw(len(_OPTIONAL_FIELDS))], draw, knowledge)
    body = {
        name: _draw_value(name, operation.fields[name], operation.example.get(name), draw, knowledge, operation.path)
        for name in names
        if name in operation.fields
    }
    # Most lists need to know whose they are.
    query = {
        name: str(values[draw(ANY) % len(values)])
        for name in operation.query
        if (values := knowledge.for_field(name, operation.path)) and (name == "tenant_id" or not draw(3))
    }
    return Request(operation, path, body, query)


def _draw_names(optional: list[str], count: int, draw: Draw, knowledge: Knowledge) -> list[str]:
    """Draw names of fields: mostly of those that interest the attacker most."""
    left, names = list(optional), []
    for _ in range(min(count, len(left))):
        most = min(_interest(name, knowledge) for name in left)
        interesting = [name for name in left if _interest(name, knowledge) == most] if draw(3) else left
        name = interesting[draw(len(interesting))]
        left.remove(name)
        names.append(name)
    return names


def _interest(name: str, knowledge: Knowledge) -> int:
    """Order fields: first what a response has just shown, then what the attacker has a value of its own for."""
    if knowledge.has_news(name):
        return 0
    return 1 if knowledge.for_field(name) else 2


def _pick(draw: Draw, values: list[Any]) -> Any:
    """Pick the first value half of the time, of the others mostly one of the first."""
    if draw(2):
        return values[0]
    return values[min(draw(ANY) % len(values), draw(ANY) % len(values))]


def _draw_value(name: str, schema: dict[str, Any], example: Any, draw: Draw, knowledge: Knowledge, path: str) -> Any:
    schema = _plain(schema)
    kinds = schema.get("type")
    kind = next((each for each in kinds if each != "null"), "null") if isinstance(kinds, list) else kinds
    if kind == "object" and "properties" in (shape := fields_of(schema)):
        names = list(shape.get("required", []))
        optional = [each for each in shape["properties"] if each not in names]
        count = max(1, _OPTIONAL_FIELDS[draw(len(_OPTIONAL_FIELDS))]) if optional and not names else draw(3)
        names += _draw_names(optional, count, draw, knowledge)
        part = example if isinstance(example, dict) else {}
        return {
            each: _draw_value(each, shape["properties"][each], part.get(each), draw, knowledge, path) for each in names
        }
    if kind == "array":
        known = knowledge.for_field(name, path) or knowledge.for_field(name.removesuffix("s"), path)
        if not known and "items" in schema:
            return [_draw_value(name, schema["items"], _first(example), draw, knowledge, path)]
        return [_pick(draw, known)] if known else example if example is not None else []
    return _pick(draw, _candidates(name, schema, kind, example, knowledge, path))


def _candidates(
    name: str, schema: dict[str, Any], kind: str | None, example: Any, knowledge: Knowledge, path: str
) -> list[Any]:
    constants = (
        [schema["const"]] if "const" in schema else [each for each in schema.get("enum", []) if each is not None]
    )
    if kind == "boolean":
        return [True, False]
    if kind in ("integer", "number"):
        limits = [schema[limit] for limit in ("minimum", "maximum") if limit in schema]
        return [each for each in (example, *limits, 1) if each is not None]
    known = [] if constants else knowledge.for_field(name, path, format=schema.get("format", ""))
    values = [*constants, *known]
    if example is not None and not known:
        values.append(knowledge.in_place_of(example))
    return values or (["a text"] if kind in ("string", None) else [{}])


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema behind references and choices; of several the first that is no null."""
    schema = resolved(schema)
    for choices in ("allOf", "oneOf", "anyOf"):
        for choice in schema.get(choices, []):
            plain = _plain(choice)
            if plain.get("type") != "null":
                return {**plain, **{key: value for key, value in schema.items() if key != choices}}
    return schema


def _first(example: Any) -> Any:
    return example[0] if isinstance(example, list) and example else None

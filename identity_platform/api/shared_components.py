"""Components for what the API document would repeat: parameters and properties. What is used once stays in its place."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from identity_platform.api.app_parts import api_part

Schema = dict[str, Any]

NULL: Final = {"type": "null"}
# What stays beside a reference, in this order.
BESIDE: Final = ("description", "default")
# Of the name of a schema that uses a type: what the name of the type does not repeat.
_OWNER: Final = re.compile("((Changes)?Request|Fields)$")
_RESPONSES, _SCHEMAS = "#/components/responses/", "#/components/schemas/"


def share(document: Schema) -> None:
    """Replace what is repeated by references to components, and references to error responses of one operation."""
    _inline_single_responses(document)
    _share_parameters(document)
    _share_properties(document["components"]["schemas"])


def operations(document: Schema) -> Iterator[Schema]:
    for methods in document["paths"].values():
        yield from methods.values()


def _inline_single_responses(document: Schema) -> None:
    responses, schemas = document["components"]["responses"], document["components"]["schemas"]
    places = [
        (operation["responses"], status, response["$ref"].removeprefix(_RESPONSES))
        for operation in operations(document)
        for status, response in operation["responses"].items()
        if "$ref" in response
    ]
    uses = Counter(name for _, _, name in places)
    for operation_responses, status, name in places:
        if uses[name] == 1:
            operation_responses[status] = response = responses.pop(name)
            content = response["content"]["application/json"]
            content["schema"] = schemas.pop(content["schema"]["$ref"].removeprefix(_SCHEMAS))


def _share_parameters(document: Schema) -> None:
    """Name repeated parameters after their place and their name. Of several with one name, the most frequent is shared."""
    lists = [operation["parameters"] for operation in operations(document) if "parameters" in operation]
    uses = Counter(_key(parameter) for parameters in lists for parameter in parameters)
    shared: dict[str, str] = {}
    components: Schema = {}
    for key, count in sorted(uses.items(), key=lambda use: (-use[1], use[0])):
        parameter = json.loads(key)
        name = f"{parameter['in'].capitalize()}{_pascal(parameter['name'])}"
        if count > 1 and name not in components:
            components[name] = parameter
            shared[key] = name
    for parameters in lists:
        for index, parameter in enumerate(parameters):
            if component := shared.get(_key(parameter)):
                parameters[index] = {"$ref": f"#/components/parameters/{component}"}
    document["components"]["parameters"] = dict(sorted(components.items()))


def _share_properties(schemas: Schema) -> None:
    """Share enums and objects: generators make a type of each. Descriptions, defaults and null stay where they are used."""
    # Enums first: objects contain them.
    for is_type in (_is_enum, _is_object):
        uses: dict[str, list[tuple[str, Schema]]] = defaultdict(list)
        for owner, schema in schemas.items():
            for name, field in () if owner.endswith("Error") else _fields(schema, owner):
                if is_type(core := _core(field)):
                    uses[json.dumps(core, sort_keys=True)].append((name, field))
        for occurrences in uses.values():
            if len(occurrences) > 1:
                _share(occurrences, schemas)


def _share(uses: Sequence[tuple[str, Schema]], schemas: Schema) -> None:
    names = api_part().type_names
    first, core = uses[0][0], _core(uses[0][1])
    name = next((names[path] for path, _ in uses if path in names), _name_at(first))
    if name in schemas:
        raise ValueError(f"Two schemas would have the name {name}: state another one for {first} in `type_names`.")
    schemas[name] = core
    for _, field in uses:
        beside = {key: field[key] for key in BESIDE if key in field}
        reference = {"$ref": f"{_SCHEMAS}{name}"}
        nullable = NULL in field.get("oneOf", ())
        field.clear()
        field.update({"oneOf": [reference, NULL]} if nullable else reference, **beside)


def _fields(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Yield the fields of a schema, of the objects in it and of lists, each with its path from the schema's name."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from _fields(field, f"{path}.{name}")
    for inner in (*schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _fields(inner, path)
    if "items" in schema:
        yield path, schema["items"]
        yield from _fields(schema["items"], path)


def _name_at(path: str) -> str:
    """Return the name of the type at a path, made of the names of the schema and of its fields."""
    owner, *names = path.split(".")
    return "".join([_OWNER.sub("", owner), *map(_pascal, names)])


def _core(field: Schema) -> Schema:
    """Return the type of a field: without what can stand beside a reference."""
    core = {name: value for name, value in field.items() if name not in BESIDE}
    choices = [choice for choice in core.get("oneOf", ()) if choice != NULL]
    if len(core) == len(choices) == 1:
        return dict(choices[0])
    return {**core, "oneOf": choices} if choices else core


def _is_enum(core: Schema) -> bool:
    return "enum" in core


def _is_object(core: Schema) -> bool:
    return "properties" in core or any(choice.get("type") == "object" for choice in core.get("oneOf", ()))


def _key(content: Schema) -> str:
    return json.dumps(content, default=str)


def _pascal(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in name.replace("-", "_").split("_"))

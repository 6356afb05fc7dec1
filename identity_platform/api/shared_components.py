"""Components for what the API document would repeat: parameters and properties. What is used once stays in its place."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

Schema = dict[str, Any]

# Characters of a reference.
REFERENCE: Final = 45
# A property is shared if that saves this many characters. Less is not worth a type of its own in generated clients.
LEAST: Final = 300
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
    for found, status, name in places:
        if uses[name] == 1:
            found[status] = response = responses.pop(name)
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
    """Name repeated properties after the property. If the name is taken, the name of the schema comes before it."""
    uses: Counter[str] = Counter()
    names: dict[str, list[str]] = defaultdict(list)
    for owner, schema in schemas.items():
        _count(schema, owner, "", uses, names)
    shared: dict[str, str] = {}
    for key in sorted(uses, key=lambda key: (-uses[key] * len(key), key)):
        taken = {*schemas, *shared.values()}
        free = [name for name in names[key] if name not in taken]
        if free and (uses[key] - 1) * len(key) - uses[key] * REFERENCE >= LEAST:
            shared[key] = free[0]
    for schema in list(schemas.values()):
        _replace(schema, shared, schemas)


def _parts(schema: Schema, name: str) -> Iterator[tuple[Any, Any, str, Schema]]:
    """Yield the properties and the objects to choose from: container, key in it, name and schema of each."""
    for key, field in schema.get("properties", {}).items():
        yield schema["properties"], key, key, field
    for index, choice in enumerate(schema.get("oneOf", ())):
        if "properties" in choice:
            yield schema["oneOf"], index, name, choice


def _count(schema: Schema, owner: str, within: str, uses: Counter[str], names: dict[str, list[str]]) -> None:
    for _, _, name, part in _parts(schema, within):
        key = _key(part)
        uses[key] += 1
        names[key] += [_pascal(name), f"{owner.removesuffix('Request')}{_pascal(name)}"]
        # Within what is repeated, each property is there once.
        if uses[key] == 1:
            _count(part, owner, name, uses, names)


def _replace(schema: Schema, shared: dict[str, str], schemas: Schema) -> None:
    for container, place, _, part in list(_parts(schema, "")):
        component = shared.get(_key(part))
        if component is not None:
            described = (
                {"description": part.pop("description")} if "properties" in part and "description" in part else {}
            )
            container[place] = {"$ref": f"{_SCHEMAS}{component}", **described}
            if component in schemas:
                continue
            schemas[component] = part
        _replace(part, shared, schemas)


def _key(content: Schema) -> str:
    """Return the content as text. The description of an object stays where the object is used."""
    kept = {name: value for name, value in content.items() if name != "description" or "properties" not in content}
    return json.dumps(kept, default=str)


def _pascal(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in name.replace("-", "_").split("_"))

"""Names of the schemas of the API document, which generated clients use as names of types.

They are the names of the serializers: `GroupOut` becomes `Group`, and `GroupIn` becomes `GroupRequest`. So a serializer has a
name that says enough outside its module. Several schemas with one name must have the same shape, and become one.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

Schema = dict[str, Any]

_SCHEMAS: Final = "#/components/schemas/"


def name_schemas(document: Schema) -> None:
    """Name schemas after their serializers: of GroupIn drf-spectacular makes `GroupInRequest`."""
    names = {
        name: re.sub("InRequest$", "Request", name).removesuffix("Out") for name in document["components"]["schemas"]
    }
    rename(document, names)


def rename(document: Schema, names: Mapping[str, str]) -> None:
    """Rename schemas. Raises ValueError if schemas of different shapes would have one name."""
    renamed: Schema = {}
    for name, schema in document["components"]["schemas"].items():
        first_schema = renamed.setdefault(names[name], schema)
        if _shape(first_schema) != _shape(schema):
            raise ValueError(f"Two schemas of different shapes would be named {names[name]}.")
    document["components"]["schemas"] = renamed
    for part in objects_in(document):
        if isinstance(target := part.get("$ref"), str) and target.startswith(_SCHEMAS):
            part["$ref"] = _SCHEMAS + names[target.removeprefix(_SCHEMAS)]


def objects_in(content: Any) -> Iterator[Schema]:
    """Yield the objects of a part of the document, the outer before the inner."""
    if isinstance(content, dict):
        yield content
    for inner in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from objects_in(inner)


def _shape(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "description"}

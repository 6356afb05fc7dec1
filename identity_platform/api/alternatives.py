"""Bodies that need one of several fields, in the API document: a shape for each, so that generators make usable types."""

from copy import deepcopy
from typing import Any, Final

Schema = dict[str, Any]

# Serializers state it as `any_of`: groups of fields, of which a body needs one.
STATED: Final = "x-any-of"


def expand_alternatives(schemas: Schema) -> None:
    """Replace each schema that needs one of several groups of fields by a choice of schemas that require one group each.

    A choice is named after the last field of its group, which the others belong to.
    `anyOf` beside `properties` would say the same, but generators read it as a body of any type.
    """
    for name, schema in list(schemas.items()):
        choices = []
        for group in schema.pop(STATED, ()):
            choice = f"{name.removesuffix('Request')}By{group[-1].title().replace('_', '')}Request"
            required = sorted({*schema.get("required", ()), *group})
            schemas[choice] = {**deepcopy(schema), "required": required}
            choices.append({"$ref": f"#/components/schemas/{choice}"})
        if choices:
            schemas[name] = {"anyOf": choices}

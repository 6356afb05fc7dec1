"""The settings of a tenant in the API document."""

from identity_platform.api.fields import Choice, Text
from tenants.settings.declarations import SETTINGS, Setting
from tenants.settings.page_addresses import PageAddress


def json_schema(*, nullable: bool) -> dict[str, object]:
    """Return the JSON Schema (OpenAPI 3.1) of a settings object. `nullable`: every setting can be null."""
    properties = {name: _property(setting, nullable=nullable) for name, setting in SETTINGS.items()}
    return {"type": "object", "properties": properties}


def response_schema(*, complete: bool) -> dict[str, object]:
    """Return the JSON Schema of settings in a response: their types only, since the platform's own values can be wider.

    `complete`: every setting is present; what it means is described without.
    """
    keywords = ("type", "enum") if complete else ("type", "format", "enum", "description")
    properties: dict[str, dict[str, object]] = {}
    for name, setting in SETTINGS.items():
        shape = _property(setting, nullable=complete and setting.nullable)
        properties[name] = {word: shape[word] for word in keywords if word in shape}
        if isinstance(items := shape.get("items"), dict):
            properties[name]["items"] = {"type": items["type"]}
    return {"type": "object", "properties": properties, **({"required": list(SETTINGS)} if complete else {})}


def _property(setting: Setting, *, nullable: bool) -> dict[str, object]:
    schema = setting.field.openapi()
    if isinstance(setting.field, Text):
        schema["maxLength"] = setting.field.max_length
    if nullable:
        schema["type"] = [schema["type"], "null"]
        if isinstance(setting.field, Choice):
            schema["enum"] = [*setting.field.choices, None]
    default = setting.default.of({}, "", PageAddress())
    return schema | {"description": str(setting.meaning)} | ({} if default is None else {"default": default})

"""Descriptions of fields and parameters that many schemas share, as the apps state them.

They apply in the API document to fields without a `help_text`, which states what is particular to one schema.
"""

from typing import Any

from identity_platform.api.app_parts import api_part


def describe(document: dict[str, Any]) -> None:
    """Add the descriptions that properties of schemas and parameters of operations lack."""
    for schema in document["components"]["schemas"].values():
        for name, field in schema.get("properties", {}).items():
            _describe(name, field)
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", []):
                _describe(parameter["name"], parameter)


def _describe(name: str, described: dict[str, Any]) -> None:
    subject, is_support, _ = name.partition("_supported")
    text = f"Supported: {subject.replace('_', ' ')}." if is_support else api_part().field_descriptions.get(name)
    if text:
        described.setdefault("description", text)

"""The setting `resource_names`: what users read in place of the address of a resource (RFC 8707)."""

from collections.abc import Mapping
from typing import Final, cast

from rest_framework.fields import empty

from identity_platform.api.display_name import is_misleading
from tenants.settings.setting_fields import DistinctItems, Pattern

MOST_RESOURCES: Final = 50
_LONGEST_RESOURCE: Final = 512
_LONGEST_NAME: Final = 64


class ResourceName(Pattern):
    """One entry: `https://api.example.com/invoices Invoices`."""

    default_error_messages = {"misleading": "Choose a name without `@`, `://` and invisible characters."}

    def __init__(self) -> None:
        says = (
            "Send a list of entries such as `https://api.example.com/invoices Invoices`: the address of a resource, a blank "
            f"and a name of at most {_LONGEST_NAME} characters."
        )
        # The address of a resource has no blank, a name may have some.
        pattern = rf"[A-Za-z][!-~]{{1,{_LONGEST_RESOURCE - 1}}} \S(?:[^\x00-\x1f\x7f]{{0,{_LONGEST_NAME - 2}}}\S)?"
        super().__init__(pattern, says, max_length=_LONGEST_RESOURCE + 1 + _LONGEST_NAME)

    def to_internal_value(self, data: object) -> str:
        entry = super().to_internal_value(data)
        if is_misleading(entry.partition(" ")[2]):
            self.fail("misleading")
        return entry


class ResourceNames(DistinctItems):
    """A mapping as a list of entries, each resource once."""

    default_error_messages = {"twice": "Name each resource once: {resources}."}

    def __init__(self) -> None:
        super().__init__(ResourceName(), most=MOST_RESOURCES)

    def run_validation(self, data: object = empty) -> list[str]:
        entries = super().run_validation(data)
        resources = [entry.partition(" ")[0] for entry in entries]
        if twice := sorted({resource for resource in resources if resources.count(resource) > 1}):
            self.fail("twice", resources=", ".join(twice))
        return entries


def resource_names(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the names that the settings of a tenant give to resources, by their addresses."""
    entries = cast(list[str], settings.get("resource_names") or [])
    return {resource: name for resource, _, name in (entry.partition(" ") for entry in entries)}

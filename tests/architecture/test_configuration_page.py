"""docs/configuration.md names every variable that the settings read, and no other."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Read by single commands, or in identity_platform.environment itself.
OUTSIDE_SETTINGS = {
    "IDENTITY_VAR",
    "DJANGO_SUPERUSER_USERNAME",
    "DJANGO_SUPERUSER_EMAIL",
    "DJANGO_SUPERUSER_PASSWORD",
    "TENANT_ADMIN_PASSWORD",
    "NO_COLOR",
}
NOT_VARIABLES = {"INFO", "NAME", "SECURITY_TXT_FILE"}


def read_variables() -> set[str]:
    """Return the names with which the settings call the readers of identity_platform.environment."""
    return _read_in("settings.py") | _read_in("limit_settings.py")


def _read_in(module: str) -> set[str]:
    tree = ast.parse((ROOT / "identity_platform" / module).read_text())
    readers = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "identity_platform.environment"
        for alias in node.names
    }
    return {
        str(call.args[0].value)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in readers
        if call.args and isinstance(call.args[0], ast.Constant)
    }


def test_configuration_page_lists_every_variable() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    documented = set(re.findall(r"`([A-Z][A-Z0-9_]{3,})`", page)) - NOT_VARIABLES
    assert documented - OUTSIDE_SETTINGS == read_variables()

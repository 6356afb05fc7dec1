"""Who stores another password stores when: a restore identifies passwords by that time (`userflow.accounts.models`)."""

import ast
from collections.abc import Iterator

from django.conf import settings

# It hashes the same password again.
SAME_PASSWORD = {"userflow/signin/password.py: _renew_hash"}
PACKAGES = ("console", "federation", "mfa", "openid", "registry", "tenants", "userflow")


def test_another_password_is_stored_with_its_time() -> None:
    assert set(writers_without_time()) == SAME_PASSWORD


def writers_without_time() -> Iterator[str]:
    """Yield the functions that update a stored password without `password_changed_at`."""
    for package in PACKAGES:
        for path in sorted((settings.BASE_DIR / package).rglob("*.py")):
            text = path.read_text()
            if "password" not in text or "migrations" in path.parts:
                continue
            for function in ast.walk(ast.parse(text)):
                if isinstance(function, ast.FunctionDef) and any(_omits_time(call) for call in _calls(function)):
                    yield f"{path.relative_to(settings.BASE_DIR)}: {function.name}"


def _calls(function: ast.FunctionDef) -> Iterator[ast.Call]:
    yield from (node for node in ast.walk(function) if isinstance(node, ast.Call))


def _omits_time(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    written = {keyword.arg for keyword in call.keywords}
    if call.func.attr in ("save", "bulk_update"):
        # The fields that it names.
        written = {node.value for node in ast.walk(call) if isinstance(node, ast.Constant)}
    elif call.func.attr != "update":
        return False
    return "password" in written and "password_changed_at" not in written

"""Every action that the code records has a label, and so can be chosen in a search."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

from console.audit_logs.action_labels import OF_ACTIONS
from userflow.events.catalogue import EVENTS
from userflow.sessions.assurance import Action

ROOT: Final = Path(__file__).parents[3]
APPS: Final = ("identity_platform", "tenants", "userflow", "mfa", "registry", "openid", "console")
RECORDS: Final = re.compile(r"\b_?(record\w*|count_events)\(")
ACTION: Final = re.compile(r"[a-z_]+\.[a-z_]+")
# Files, and columns in statements.
OTHERS: Final = re.compile(r"identity\..*|(global|settings|owner|opener|each|u|s)\..*|.*\.(json|dump|log|py|urls)")
# Actions that are put together, by the constant part: all values of the other part.
COMPOSED: Final = {
    "domain.": ("added", "verified", "updated", "record_lost", "withdrawn", "deleted"),
    "webhook.": ("created", "updated", "deleted", "secret_rotated", "tested", "replayed"),
    "device.": ("approved", "denied"),
    "factor.": ("enrolled", "replaced", "removed", "reset", "regenerated"),
    ".listed": ("end_user", "group", "role", "session"),
}


@cache
def sources() -> tuple[str, ...]:
    files = [file for app in APPS for file in (ROOT / app).rglob("*.py") if "migrations" not in file.parts]
    return tuple(file.read_text() for file in files if file.name != "action_labels.py")


@cache
def nodes() -> tuple[ast.AST, ...]:
    """Return the syntax of the modules that record events."""
    return tuple(node for text in sources() if RECORDS.search(text) for node in ast.walk(ast.parse(text)))


def written() -> set[str]:
    """Return the texts that look like an action, also within statements."""
    texts = {node.value for node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    in_sql = {action for text in texts for action in re.findall(r"SELECT '([a-z_.]+)'", text)}
    return {text for text in texts if ACTION.fullmatch(text) and not OTHERS.fullmatch(text)} | in_sql


def composed() -> set[str]:
    return {part + each if part.endswith(".") else each + part for part, others in COMPOSED.items() for each in others}


def test_every_recorded_action_has_a_label() -> None:
    others = EVENTS.keys() | {action.value for action in Action}
    assert ((written() - others) | composed()) - OF_ACTIONS.keys() == set(), (
        "enter them in console/audit_logs/action_labels.py"
    )


def test_every_composed_action_is_known() -> None:
    calls = [node for node in nodes() if isinstance(node, ast.Call) and "record" in ast.unparse(node.func)]
    parts = [
        value for call in calls for given in call.args if isinstance(given, ast.JoinedStr) for value in given.values
    ]
    assert {part.value for part in parts if isinstance(part, ast.Constant)} == COMPOSED.keys()


def test_every_label_is_of_a_recorded_action() -> None:
    quoted = {action for text in sources() for action in re.findall(r"['\"]([a-z_]+\.[a-z_]+)['\"]", text)}
    assert OF_ACTIONS.keys() - quoted - composed() == set()

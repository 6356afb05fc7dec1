"""Every way in goes through `userflow.signin.pipeline`: only there the policy is asked and a session of a person opened."""

import ast
from collections.abc import Iterator

from django.conf import settings

PACKAGES = ("console", "federation", "mfa", "openid", "registry", "tenants", "userflow")
PIPELINE = "userflow/signin/pipeline.py"
MODULES = (
    "userflow.signin.pipeline",
    "userflow.signin.queries",
    "userflow.sessions.queries",
    "userflow.sessions.issue",
)
# What they are called where they are imported as a whole.
NAMES = ("pipeline", "queries", "session_queries", "issue")
# First factors, which `sign_in` takes on to a session or to the step that the policy asks for.
FIRST_FACTORS = {"userflow/signin/password.py: sign_in_admin", "userflow/signin/password.py: _sign_in_end_user"}
# Last steps. Without the ticket of a first one `completion_of` asks the policy too.
LAST_STEPS = {
    "mfa/completion.py: second_step_completion",
    "mfa/completion.py: only_step_completion",
}


def test_only_the_pipeline_opens_sessions() -> None:
    for name in ("open_session", "complete_login", "new_session", "first_tokens"):
        assert {caller.partition(":")[0] for caller in callers_of(name)} == {PIPELINE}


def test_first_factors_are_known() -> None:
    assert set(callers_of("sign_in")) == FIRST_FACTORS


def test_last_steps_are_known() -> None:
    assert set(callers_of("completion_of")) == LAST_STEPS


def callers_of(name: str) -> Iterator[str]:
    """Yield the functions that call a function of this name of the pipeline or of the modules below it."""
    for package in PACKAGES:
        for path in sorted((settings.BASE_DIR / package).rglob("*.py")):
            text = path.read_text()
            if name not in text or "migrations" in path.parts:
                continue
            tree = ast.parse(text)
            is_imported = any(_imports(node, name) for node in ast.walk(tree))
            for function in ast.walk(tree):
                if isinstance(function, ast.FunctionDef) and any(
                    _calls(node, name, is_imported=is_imported) for node in ast.walk(function)
                ):
                    yield f"{path.relative_to(settings.BASE_DIR)}: {function.name}"


def _imports(node: ast.AST, name: str) -> bool:
    of_pipeline = isinstance(node, ast.ImportFrom) and node.module in MODULES
    return of_pipeline and name in {alias.name for alias in node.names}


def _calls(node: ast.AST, name: str, *, is_imported: bool) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=called)):
            return called == name and module in NAMES
        case ast.Call(func=ast.Name(id=called)):
            return called == name and is_imported
    return False

"""Rules of the architecture that a test can check (docs/architecture.md)."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.urls import URLPattern, URLResolver, get_resolver
from django.views.generic import RedirectView

from identity_platform.api.views import ApiViewSet, Contract
from openid.pages.page import Page
from tests.machine.groups import EMBEDDED_ONLY, NOT_EVERY_DAY, ON_BOTH, ON_SERVERS, SLOW_ON_SERVERS
from tests.machine.order import LONGEST

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["identity_platform", "tenants", "userflow", "registry", "mfa", "federation", "openid", "console"]
MEANINGLESS = {"utils", "util", "helpers", "helper", "common", "base", "misc", "services", "managers"}
# The names that Django looks for in a database backend.
GIVEN_BY_DJANGO = {Path("tenants/backend/base.py"), Path("identity_platform/postgresql/base.py")}
# Pages, documents and metrics, which are not JSON endpoints of the API.
PAGES = ("admin/", "docs", "demo/", "password/reset", "email/verify", "email/undo", "invitations/accept", "favicon.ico")
NOT_OURS = ("schema", "metrics", ".well-known/security.txt", ".well-known/change-password", *PAGES)


def modules() -> list[Path]:
    return [path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py")]


def endpoints(resolver: Any = None, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and callback of every route."""
    for entry in (resolver or get_resolver()).url_patterns:
        path = before + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from endpoints(entry, path)
        elif isinstance(entry, URLPattern):
            yield path, entry.callback


# The path `/` redirects to the documentation.
OURS = [
    (path, callback)
    for path, callback in endpoints()
    if path
    and not path.startswith(NOT_OURS)
    and not issubclass(getattr(callback, "view_class", object), (Page, RedirectView))
]


def test_module_names_have_a_meaning() -> None:
    nameless = [path for path in modules() if {path.stem, *path.parent.parts} & MEANINGLESS]
    assert set(nameless) == GIVEN_BY_DJANGO


def test_files_that_start_first_exist() -> None:
    assert [path for path in LONGEST if not (ROOT / path).is_file()] == []


def test_files_of_the_groups_of_tests_exist() -> None:
    paths = [*NOT_EVERY_DAY, *ON_SERVERS, *SLOW_ON_SERVERS, *ON_BOTH, *EMBEDDED_ONLY]
    assert [path for path in paths if not (ROOT / path.partition("::")[0]).exists()] == []


def test_imports_go_downwards_only() -> None:
    run = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_endpoints_are_found() -> None:
    assert len(OURS) > 20


@pytest.mark.parametrize(("path", "callback"), OURS, ids=[path for path, _ in OURS])
def test_every_endpoint_declares_its_contract(path: str, callback: Any) -> None:
    view = getattr(callback, "cls", None)
    assert view is not None, f"{path} is not a view set"
    assert issubclass(view, ApiViewSet)
    for method, action in callback.actions.items():
        contract = getattr(getattr(view, action), "contract", None)
        assert isinstance(contract, Contract), f"{method} {path}: {view.__name__}.{action} has no @endpoint"
        assert contract.returns
        assert getattr(view, action).__doc__


def test_cookies_are_hashed_in_one_place() -> None:
    """The digest of a cookie includes the sign-in domain: a plain hash would find nothing there."""
    found = {
        str(path)
        for path in modules()
        for call in re.findall(r"hash_token\(([^()\n]*)", (ROOT / path).read_text())
        if re.search(r"cookie|browser", call)
    }
    assert found == {"userflow/sessions/cookies.py"}


def test_no_migration_is_missing() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_every_tenant_migration_is_one_transaction() -> None:
    from django.db.migrations.loader import MigrationLoader

    from tenants.entering.schema import migration_names

    loader = MigrationLoader(None)
    assert [name for name in migration_names() if not loader.disk_migrations[name].atomic] == []


def test_system_checks_report_nothing() -> None:
    call_command("check", databases=["default"], fail_level="WARNING")

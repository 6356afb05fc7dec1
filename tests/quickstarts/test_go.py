"""The application in Go of docs/quickstarts.md signs a user in."""

import shutil
from collections.abc import Callable

import pytest

from tests.examples.form_browser import FormBrowser
from tests.quickstarts.application import GO_FOLDER, Application
from tests.world import User


@pytest.mark.needs("go")
def test_go_oidc_signs_in(new_application: Callable[[str], Application], form_browser: FormBrowser, user: User) -> None:
    application = new_application("/callback")
    for name in ("go.mod", "go.sum"):
        shutil.copy(GO_FOLDER / name, application.folder)
    application.start("Go")
    form_browser.opens(f"{application.address}/login")
    assert form_browser.signs_in(user.email, user.password) == f"Signed in as {user.email} ({user.id})"
    assert form_browser.opens("/callback?code=stolen&state=foreign") == "Sign in again.\n"
    assert form_browser.page.status_code == 400

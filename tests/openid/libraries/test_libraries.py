"""Libraries work with their defaults: each runs unchanged in a small application of this folder."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import unquote_plus

import pytest
import requests

from tests.examples.form_browser import FormBrowser
from tests.openid.libraries.conftest import API
from tests.openid.libraries.libraries import (
    GO_SAMPLE,
    NODE_SAMPLES,
    NODE_VERIFIERS,
    PYTHON_SAMPLES,
    PYTHON_VERIFIER,
    REFRESH,
    RUBY_SAMPLE,
    SIGN_OUT,
    WITHOUT_PKCE,
    Sample,
)
from tests.openid.relying_party import Application as RelyingParty
from tests.openid.relying_party import register_application
from tests.quickstarts.application import Application
from tests.world import TestTenant, User

OTHER_API = "https://invoices.example.com"
Start = Callable[[Sample], Application]


def with_program(program: str, *samples: Sample) -> list[Any]:
    """Return the samples as parameters of tests that need a program."""
    return [pytest.param(sample, marks=pytest.mark.needs(program), id=sample.name) for sample in samples]


def claims(text: str) -> tuple[Any, Any]:
    """Return who is signed in according to the page of an application."""
    assert text.startswith("{"), text
    user = json.loads(text)
    return user.get("sub"), user.get("email")


IN_APPLICATIONS = [
    *with_program("node", *NODE_SAMPLES),
    *with_program("django-admin", *PYTHON_SAMPLES),
    *with_program("gitlab-omniauth-openid-connect", RUBY_SAMPLE),
    *with_program("go", GO_SAMPLE),
]


def begin(browser: FormBrowser, application: Application, library: Sample) -> None:
    """Begin a sign-in at the application."""
    browser.opens(f"{application.address}{library.login}")
    if library.has_login_form:
        browser.sends()


@pytest.mark.parametrize("library", IN_APPLICATIONS)
def test_library_signs_in(start: Start, form_browser: FormBrowser, user: User, library: Sample) -> None:
    application = start(library)
    signed_in = (str(user.id), user.email)
    begin(form_browser, application, library)
    assert claims(form_browser.signs_in(user.email, user.password)) == signed_in
    if REFRESH in library.tested:
        assert claims(form_browser.opens("/refresh")) == signed_in
    if SIGN_OUT in library.tested:
        assert claims(form_browser.opens("/logout")) == (None, None)
        form_browser.opens(library.login)
        # The provider has ended its session too.
        assert 'name="email"' in form_browser.page.text


@pytest.mark.parametrize("library", [sample for sample in IN_APPLICATIONS if sample.values[0].client == WITHOUT_PKCE])
def test_client_without_pkce_needs_its_setting(start: Start, form_browser: FormBrowser, library: Sample) -> None:
    # Once a library sends PKCE, the page must not tell its users to switch it off.
    begin(form_browser, start(replace(library, client={})), library)
    addresses = [unquote_plus(response.headers["Location"]) for response in form_browser.page.history]
    (error,) = [address for address in addresses if "error=" in address and "error_description=" in address]
    assert "error=invalid_request" in error
    assert "code_challenge" in error


@pytest.mark.parametrize(
    "library", [*with_program("node", *NODE_VERIFIERS), *with_program("django-admin", PYTHON_VERIFIER)]
)
def test_library_verifies_access_tokens(start: Start, tenant: TestTenant, user: User, library: Sample) -> None:
    api = start(library)
    client = RelyingParty(tenant, register_application(tenant, first_party=True, audiences=[API, OTHER_API]))
    client.sign_in(user)
    tokens = client.tokens(resource=API)

    def call(token: str) -> requests.Response:
        address = f"{api.address}/{library.name}"
        return requests.get(address, headers={"Authorization": f"Bearer {token}"}, timeout=60)

    assert call(tokens["access_token"]).json() == {"sub": str(user.id)}
    rejected = [tokens["id_token"], client.tokens(resource=OTHER_API)["access_token"], tokens["access_token"][:-9]]
    assert [call(token).status_code for token in rejected] == [401] * 3

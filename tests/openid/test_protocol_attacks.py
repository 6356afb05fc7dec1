"""Attacks on the code flow over HTTP (RFC 9700 section 4): what each of them gets."""

from typing import Any
from urllib.parse import urlencode

import pytest
from django.conf import settings

from openid.browser import BROWSER, cookie_name
from tests.openid.relying_party import CALLBACK, Application, page_of, query_of, register_application
from tests.world import Api, TestTenant, User


def signed_in(tenant: TestTenant, user: User | None = None, **fields: Any) -> Application:
    app = Application(tenant, register_application(tenant, first_party=True, **fields))
    app.sign_in(user or tenant.register())
    return app


@pytest.fixture
def app(tenant: TestTenant) -> Application:
    return signed_in(tenant)


def error_of(response: Any) -> str:
    assert response.status_code in (400, 401), response.content
    return str(response.json()["error"])


def test_mix_up_is_visible_in_every_response(app: Application, other_tenant: TestTenant) -> None:
    # Section 4.4: an application that uses two issuers compares `iss` before it sends a code anywhere.
    other = signed_in(other_tenant)
    for each in (app, other):
        issuer = f"{settings.BASE_URL}{each.issuer}"
        assert query_of(each.authorize().headers["Location"])["iss"] == issuer
        assert query_of(each.authorize(prompt="none", max_age="0").headers["Location"])["iss"] == issuer
        assert query_of(each.authorize(scope="").headers["Location"])["iss"] == issuer


def test_code_sent_to_another_issuer_is_useless_there(app: Application, other_tenant: TestTenant) -> None:
    other = signed_in(other_tenant)
    other.verifier = app.verifier
    code = app.code()
    assert error_of(other.exchange(code)) == "invalid_grant"


def test_injected_code_fails_at_the_victims_verifier(app: Application, tenant: TestTenant) -> None:
    # Section 4.5: the attacker puts the victim's code into a session of the same application.
    attacker = Application(tenant, app.client)
    assert error_of(attacker.exchange(app.code())) == "invalid_grant"


DOWNGRADES: list[dict[str, Any]] = [
    {"code_challenge": None, "code_challenge_method": None},
    {"code_challenge_method": "plain"},
    {"code_challenge_method": None},
    {"code_challenge": ""},
    {"code_challenge": ["x" * 43, "y" * 43]},
]


@pytest.mark.parametrize("changed", DOWNGRADES, ids=str)
@pytest.mark.parametrize("type_", ["public", "confidential"])
def test_pkce_cannot_be_downgraded(tenant: TestTenant, changed: dict[str, Any], type_: str) -> None:
    app = signed_in(tenant, type=type_)
    assert query_of(app.authorize(**changed).headers["Location"])["error"] == "invalid_request"


def test_challenge_is_no_verifier(app: Application) -> None:
    challenge = app.parameters()["code_challenge"]
    assert error_of(app.exchange(app.code(), code_verifier=challenge)) == "invalid_grant"


MANIPULATED = [
    "https://evil.example.com/callback",
    "https://app.example.com.evil.example.com/callback",
    "https://app.example.com:8443/callback",
    "https://app.example.com/callback/",
    "https://app.example.com/callback%2f..%2fevil",
    "https://app.example.com\\@evil.example.com/callback",
    "https://app.example.com/callback\r\nSet-Cookie: x=y",
    "//evil.example.com/callback",
    "javascript:alert(1)",
    "data:text/html,x",
]


@pytest.mark.parametrize("redirect_uri", MANIPULATED)
@pytest.mark.parametrize("more", [{}, {"prompt": "none"}, {"response_type": "token"}, {"scope": " "}], ids=str)
def test_redirect_uri_cannot_be_manipulated(app: Application, redirect_uri: str, more: dict[str, Any]) -> None:
    response = app.authorize(redirect_uri=redirect_uri, **more)
    assert response.status_code == 400
    assert "Location" not in response.headers
    assert "evil" not in response.content.decode()
    assert "Set-Cookie: x" not in str(response.headers)


def test_sign_in_page_is_no_open_redirect(app: Application) -> None:
    for address in ("https://evil.example.com", "//evil.example.com", "/\\evil.example.com"):
        query = urlencode(dict.fromkeys(("request", "next", "redirect_uri", "post_logout_redirect_uri"), address))
        response = app.browser.get(f"{app.issuer}/signin?{query}")
        assert "evil.example.com" not in response.headers.get("Location", "").partition("?")[0]


def test_error_page_does_not_reflect_parameters(app: Application) -> None:
    response = app.authorize(client_id="<script>alert(1)</script>", state="<b>")
    assert response.status_code == 400
    body = response.content.decode()
    assert "alert(1)" not in body
    assert "<b>" not in body
    assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]


def test_handle_of_another_browser_continues_nothing(app: Application, tenant: TestTenant) -> None:
    # The attacker begins a request and sends the address of its page to a victim who is signed in.
    attacker = Application(tenant, app.client)
    location = page_of(attacker.authorize())
    response = app.browser.get(location)
    assert "code=" not in response.headers.get("Location", "")
    assert CALLBACK not in response.headers.get("Location", "")


def test_browser_cookie_of_another_tenant_binds_nothing(app: Application, other_tenant: TestTenant) -> None:
    other = Application(other_tenant, register_application(other_tenant), browser=Api())
    location = page_of(other.authorize())
    value = other.browser.client.cookies[cookie_name(BROWSER, other_tenant.id)].value
    app.browser.client.cookies[cookie_name(BROWSER, app.tenant.id)] = value
    handle = query_of(location)["request"]
    response = app.browser.get(f"{app.issuer}/signin?request={handle}")
    assert "code=" not in response.headers.get("Location", "")


def test_prompt_none_with_other_origin_shows_no_page(app: Application) -> None:
    response = app.authorize(prompt="none", max_age="0")
    assert (response.status_code, response.content) == (303, b"")
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Referrer-Policy"] == "no-referrer"


def test_tokens_cannot_be_substituted(app: Application) -> None:
    tokens = app.tokens(scope="openid offline_access")
    for name in ("access_token", "id_token"):
        sent = {"grant_type": "refresh_token", "refresh_token": tokens[name]}
        assert error_of(app.token(**sent)) == "invalid_grant"
        assert error_of(app.exchange(tokens[name])) == "invalid_grant"
    for name in ("id_token", "refresh_token"):
        assert Api(token=tokens[name]).get("/authmgr/validate").status_code == 401

"""The authorization endpoint: where the browser is sent, and what is never redirected."""

from typing import Any
from urllib.parse import urlencode

import pytest
from django.conf import settings as configured

from openid.authorization.requests import pending_request
from openid.browser import BROWSER, cookie_name
from openid.errors import RequestExpired
from tenants.entering.context import in_tenant
from tests.copies import change_client
from tests.openid.relying_party import CALLBACK, Application, page_of, query_of, register_application
from tests.userflow.sessions.clients import FORM
from tests.world import TestTenant


@pytest.fixture
def app(tenant: TestTenant) -> Application:
    return Application(tenant, register_application(tenant))


def error_of(response: Any) -> dict[str, str]:
    """Return the error that the application gets."""
    assert response.status_code == 303, response.content
    assert response.headers["Location"].startswith(f"{CALLBACK}?")
    fields = query_of(response.headers["Location"])
    assert "code" not in fields
    return fields


def test_authorize_shows_the_sign_in_page(app: Application) -> None:
    response = app.authorize()
    assert response.status_code == 200
    assert page_of(response).startswith(f"/t/{app.tenant.slug}/signin?request=")
    assert response.headers["Cache-Control"] == "no-store"
    cookie = response.cookies[cookie_name(BROWSER, app.tenant.id)]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/")
    with in_tenant(app.tenant.id):
        pending = pending_request(query_of(page_of(response))["request"], cookie.value)
    assert pending.parameters.scopes == ("openid",)
    assert (pending.parameters.state, pending.parameters.nonce) == ("a state", "a nonce")


def test_request_of_another_browser_is_expired(app: Application) -> None:
    handle = query_of(page_of(app.authorize()))["request"]
    with in_tenant(app.tenant.id), pytest.raises(RequestExpired):
        pending_request(handle, "another browser")


WRONG_CLIENT_OR_ADDRESS: list[dict[str, Any]] = [
    {"client_id": None},
    {"client_id": "00000000-0000-4000-8000-000000000000"},
    {"client_id": "x"},
    {"client_id": "\x00"},
    {"redirect_uri": None},
    {"redirect_uri": "https://evil.example.com/callback"},
    {"redirect_uri": f"{CALLBACK}/../evil"},
    {"redirect_uri": f"{CALLBACK}?x=1"},
    {"redirect_uri": f"{CALLBACK}#x"},
    {"redirect_uri": "https://app.example.com@evil.example.com/callback"},
    {"redirect_uri": "https://APP.example.com/callback"},
    {"redirect_uri": "http://app.example.com/callback"},
    {"redirect_uri": [CALLBACK, "https://evil.example.com"]},
    {"redirect_uri": [CALLBACK, CALLBACK]},
]


@pytest.mark.parametrize("changed", WRONG_CLIENT_OR_ADDRESS, ids=str)
@pytest.mark.parametrize("prompt", [None, "none"])
def test_wrong_client_or_address_is_never_redirected(
    app: Application, changed: dict[str, Any], prompt: str | None
) -> None:
    response = app.authorize(**changed, prompt=prompt)
    assert response.status_code == 400
    assert "Location" not in response.headers


def test_client_of_another_tenant_is_unknown(app: Application, other_tenant: TestTenant) -> None:
    foreign = register_application(other_tenant)
    assert app.authorize(client_id=foreign["client_id"]).status_code == 400


REJECTED: list[tuple[dict[str, Any], str]] = [
    ({"response_type": None}, "invalid_request"),
    ({"response_type": "token"}, "unsupported_response_type"),
    ({"response_type": "code id_token"}, "unsupported_response_type"),
    ({"response_type": '"\\é'}, "invalid_request"),
    ({"response_type": ["code", "code"]}, "invalid_request"),
    ({"response_mode": "fragment.jwt"}, "invalid_request"),
    ({"response_mode": "fragment"}, "invalid_request"),
    ({"code_challenge": None}, "invalid_request"),
    ({"code_challenge": "short"}, "invalid_request"),
    ({"code_challenge": "x" * 43 + "\n"}, "invalid_request"),
    ({"code_challenge_method": None}, "invalid_request"),
    ({"code_challenge_method": "plain"}, "invalid_request"),
    ({"code_challenge": None, "code_challenge_method": None}, "invalid_request"),
    ({"scope": "  "}, "invalid_scope"),
    ({"scope": 'openid "'}, "invalid_scope"),
    ({"scope": "unknown:scope"}, "invalid_scope"),
    ({"scope": ["openid", "email"]}, "invalid_request"),
    ({"nonce": ["a", "b"]}, "invalid_request"),
    ({"nonce": "x" * 1025}, "invalid_request"),
    ({"prompt": "none login"}, "invalid_request"),
    ({"prompt": "none create"}, "invalid_request"),
    ({"prompt": "other"}, "invalid_request"),
    ({"max_age": "-1"}, "invalid_request"),
    ({"max_age": "１"}, "invalid_request"),
    ({"claims": "[]"}, "invalid_request"),
    ({"claims": '{"id_token": {"email": true}}'}, "invalid_request"),
    ({"claims": '{"id_token": ' + '{"a":' * 40 + "1" + "}" * 41}, "invalid_request"),
    ({"dpop_jkt": "x"}, "invalid_request"),
    ({"resource": "https://api.example.com"}, "invalid_target"),
    ({"resource": ["identity-api", "identity-api"]}, "invalid_target"),
    ({"request": "eyJhbGciOiJub25lIn0.e30."}, "request_not_supported"),
    ({"request_uri": "https://app.example.com/request"}, "request_uri_not_supported"),
    ({"prompt": "none"}, "login_required"),
]


@pytest.mark.parametrize(("changed", "error"), REJECTED, ids=str)
def test_rejected_request_returns_to_application(app: Application, changed: dict[str, Any], error: str) -> None:
    fields = error_of(app.authorize(**changed))
    assert (fields["error"], fields["state"]) == (error, "a state")
    assert fields["iss"] == f"{configured.BASE_URL}/t/{app.tenant.slug}"


def test_repeated_state_is_not_returned(app: Application) -> None:
    fields = error_of(app.authorize(state=["a", "b"]))
    assert fields["error"] == "invalid_request"
    assert "state" not in fields


def test_unknown_parameters_and_scopes_are_ignored(app: Application) -> None:
    response = app.authorize(unknown="x", scope="openid unknown", display="page")
    assert page_of(response).startswith(f"/t/{app.tenant.slug}/signin?")


def test_state_is_returned_unchanged(app: Application) -> None:
    state = "a b+c&d=e%20é\"'<>\\"
    assert error_of(app.authorize(prompt="none", state=state))["state"] == state


def test_authorize_by_post(app: Application) -> None:
    app.authorize()
    body = urlencode(app.parameters()).encode()
    path = f"{app.issuer}/authorize"
    response = app.browser.post(path, raw=body, content_type=FORM)
    assert page_of(response).startswith(f"/t/{app.tenant.slug}/signin?")
    assert app.browser.post(path, app.parameters()).status_code == 400


def test_form_without_cookies_goes_on_as_a_link(app: Application) -> None:
    # Browsers send Lax cookies with a link from another site, but not with a form.
    app.sign_in(app.tenant.register())
    cookies = dict(app.browser.client.cookies.items())
    app.browser.client.cookies.clear()
    change_client(app.client["client_id"], first_party=True)
    body = urlencode(app.parameters(prompt="none")).encode()
    path = f"{app.issuer}/authorize"
    response = app.browser.post(path, raw=body, content_type=FORM)
    address = response.headers["Location"]
    assert (response.status_code, address.partition("?")[0]) == (303, path)
    assert not response.cookies
    assert query_of(address).keys() == {"client_id", "request_uri"}
    app.browser.client.cookies.update(cookies)
    answer = query_of(app.browser.get(address).headers["Location"])
    assert answer["code"]
    assert answer["state"] == "a state"
    assert app.browser.get(address).status_code == 400


def test_form_without_cookies_is_checked_before_it_goes_on(app: Application) -> None:
    path = f"{app.issuer}/authorize"
    wrong = urlencode(app.parameters(response_type="token")).encode()
    rejected = app.browser.post(path, raw=wrong, content_type=FORM)
    assert error_of(rejected)["error"] == "unsupported_response_type"
    assert not rejected.cookies


def test_requests_of_a_network_are_limited(app: Application, settings: Any) -> None:
    settings.LIMITS = {**settings.LIMITS, "authorization": (2, 60)}
    for _ in range(2):
        assert app.authorize().status_code == 200
    limited = app.authorize()
    assert limited.status_code == 429
    assert int(limited.headers["Retry-After"]) > 0
    # What is answered without a page stores nothing.
    assert error_of(app.authorize(prompt="none"))["error"] == "login_required"


def test_head_issues_nothing(app: Application) -> None:
    assert app.browser.call("HEAD", f"{app.issuer}/authorize?{urlencode(app.parameters())}").status_code == 405


def test_unknown_tenant_is_404(app: Application) -> None:
    assert app.browser.get("/t/unknown/authorize").status_code == 404

"""response_mode=form_post: the browser posts the response to the application (OAuth 2.0 Form Post Response Mode)."""

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.conf import settings

from tests.openid.pages.visitor import Visitor, begin
from tests.openid.relying_party import CALLBACK, Application, query_of, register_application
from tests.userflow.sessions.clients import form
from tests.world import Api, TestTenant

_INPUT = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')
STATE = "a b+c&d=e%20é\"'<>\\"


def posted(response: Any) -> dict[str, str]:
    """Return the fields of the form that posts the response, after a look at the page and its policy."""
    assert response.status_code == 200, response.content
    page, policy = response.content.decode(), response.headers["Content-Security-Policy"]
    assert f'<form method="post" action="{CALLBACK}">' in page
    nonce = re.search(r'<script nonce="([^"]+)">document.forms\[0\].submit\(\);</script>', page)
    assert nonce is not None
    assert f"script-src 'nonce-{nonce[1]}'" in policy
    assert "form-action 'self' https://app.example.com" in policy
    assert "unsafe" not in policy
    assert response.headers["Cache-Control"] == "no-store"
    assert "Location" not in response.headers
    return {name: unescape(value) for name, value in _INPUT.findall(page)}


@pytest.fixture
def app(tenant: TestTenant) -> Application:
    """Return an application whose user is signed in."""
    app = Application(tenant, register_application(tenant, first_party=True))
    app.sign_in(tenant.register())
    return app


def test_code_is_posted(app: Application) -> None:
    fields = posted(app.authorize(response_mode="form_post", state=STATE))
    assert set(fields) == {"code", "state", "iss"}
    assert (fields["state"], fields["iss"]) == (STATE, f"{settings.BASE_URL}{app.issuer}")
    assert app.exchange(fields["code"]).status_code == 200


def test_mode_survives_sign_in_and_consent(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    app = begin(visitor, client={}, response_mode="form_post")
    visitor.sends(email=tenant.register().email, password="correct horse 9 battery")
    assert visitor.at == "consent", visitor.text
    visitor.sends(allow="1")
    assert app.exchange(posted(visitor.page)["code"]).status_code == 200


def test_denied_consent_is_posted(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    begin(visitor, client={}, response_mode="form_post")
    visitor.sends(email=tenant.register().email, password="correct horse 9 battery")
    visitor.sends(deny="1")
    fields = posted(visitor.page)
    assert (fields["error"], fields["state"]) == ("access_denied", "a state")


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"prompt": "none"}, "login_required"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"scope": "unknown:scope"}, "invalid_scope"),
        ({"code_challenge": None}, "invalid_request"),
        ({"request": "e30.e30."}, "invalid_request_object"),
    ],
    ids=str,
)
def test_error_is_posted(tenant: TestTenant, changed: dict[str, Any], error: str) -> None:
    app = Application(tenant, register_application(tenant))
    fields = posted(app.authorize(response_mode="form_post", state=STATE, **changed))
    assert (fields["error"], fields["state"]) == (error, STATE)
    assert fields["iss"] == f"{settings.BASE_URL}{app.issuer}"
    assert "code" not in fields


def test_suspended_tenant_is_posted(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    own = new_tenant()
    app = Application(own, register_application(own))
    operator.patch(f"/uflow/admin/tenants/{own.id}", {"status": "suspended"})
    assert posted(app.authorize(response_mode="form_post"))["error"] == "access_denied"


@pytest.mark.parametrize("mode", ["fragment", "web_message", "fragment.jwt", "JWT", "FORM_POST", "form_post "])
def test_unknown_mode_is_an_error_in_the_query(app: Application, mode: str) -> None:
    fields = query_of(app.authorize(response_mode=mode).headers["Location"])
    assert (fields["error"], fields["error_description"]) == (
        "invalid_request",
        "response_mode must be one of: query, form_post, jwt, query.jwt, form_post.jwt.",
    )


def test_query_is_the_default_and_can_be_named(app: Application) -> None:
    assert query_of(app.authorize(response_mode="query").headers["Location"])["code"]
    assert query_of(app.authorize().headers["Location"])["code"]


def test_repeated_mode_is_an_error(app: Application) -> None:
    fields = query_of(app.authorize(response_mode=["form_post", "form_post"]).headers["Location"])
    assert fields["error"] == "invalid_request"


def test_app_with_a_scheme_of_its_own_gets_no_form(tenant: TestTenant) -> None:
    own = "com.example.app:/callback"
    app = Application(tenant, register_application(tenant, redirect_uris=[own]))
    location = app.authorize(response_mode="form_post", redirect_uri=own).headers["Location"]
    assert location.startswith(f"{own}?error=invalid_request")


@pytest.mark.parametrize("changed", [{"client_id": None}, {"redirect_uri": "https://evil.example.com/"}], ids=str)
def test_nothing_is_posted_to_an_unknown_address(app: Application, changed: dict[str, Any]) -> None:
    response = app.authorize(response_mode="form_post", **changed)
    assert response.status_code == 400
    assert "<form" not in response.content.decode()


def test_pushed_request_has_the_mode(app: Application) -> None:
    sent = app.parameters(response_mode="form_post")
    pushed = app.new_caller().post(f"{app.issuer}/par", **form(**sent)).json()
    own = {"client_id": app.client["client_id"], "request_uri": pushed["request_uri"]}
    fields = posted(app.browser.get(f"{app.issuer}/authorize", own))
    assert app.exchange(fields["code"]).status_code == 200


def test_metadata_lists_the_modes(tenant: TestTenant) -> None:
    document = Api().get(f"/t/{tenant.slug}/.well-known/openid-configuration").json()
    modes = ["query", "form_post", "jwt", "query.jwt", "form_post.jwt"]
    assert document["response_modes_supported"] == modes


def test_client_of_another_tenant_gets_nothing(app: Application, other_tenant: TestTenant) -> None:
    foreign = register_application(other_tenant)
    assert app.authorize(response_mode="form_post", client_id=foreign["client_id"]).status_code == 400

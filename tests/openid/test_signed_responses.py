"""Signed authorization responses (JARM): the application gets one JWT, also for an error."""

from collections.abc import Callable
from typing import Any

import jwt
import pytest
from django.conf import settings
from jwt import PyJWKSet

from tests.openid.pages.visitor import Visitor, begin
from tests.openid.relying_party import CALLBACK, Application, query_of, register_application
from tests.openid.test_form_post import posted
from tests.userflow.sessions.clients import form
from tests.world import PASSWORD, Api, TestTenant

STATE = "a b+c&d"


@pytest.fixture(params=["ES256", "RS256"])
def app(tenant: TestTenant, request: pytest.FixtureRequest) -> Application:
    """An application whose user is signed in, and whose ID tokens have this algorithm."""
    made = register_application(tenant, first_party=True, id_token_signed_response_alg=request.param)
    app = Application(tenant, made)
    app.sign_in(tenant.register())
    return app


def opened(app: Application, fields: dict[str, str]) -> dict[str, Any]:
    """Verify the response with the tenant's published keys; return its claims."""
    assert set(fields) == {"response"}
    keys = PyJWKSet.from_dict(Api().get(f"{app.issuer}/jwks").json())
    header = jwt.get_unverified_header(fields["response"])
    claims: dict[str, Any] = jwt.decode(
        fields["response"],
        keys[header["kid"]].key,
        algorithms=["ES256", "RS256"],
        audience=app.client["client_id"],
        issuer=f"{settings.TOKEN_ISSUER}{app.issuer}",
        options={"require": ["exp", "iss", "aud"]},
    )
    return claims


@pytest.mark.parametrize("mode", ["jwt", "query.jwt"])
def test_code_comes_signed_in_the_query(app: Application, mode: str) -> None:
    location = app.authorize(response_mode=mode, state=STATE).headers["Location"]
    assert location.startswith(f"{CALLBACK}?response=")
    claims = opened(app, query_of(location))
    assert set(claims) == {"code", "state", "iss", "aud", "exp"}
    assert claims["state"] == STATE
    assert app.exchange(claims["code"]).status_code == 200


def test_code_comes_signed_in_a_form(app: Application) -> None:
    claims = opened(app, posted(app.authorize(response_mode="form_post.jwt", state=STATE)))
    assert app.exchange(claims["code"]).status_code == 200


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"prompt": "none", "max_age": "0"}, "login_required"),
        ({"scope": "unknown:scope"}, "invalid_scope"),
        ({"response_type": "token"}, "unsupported_response_type"),
    ],
    ids=str,
)
def test_error_comes_signed(app: Application, changed: dict[str, str], error: str) -> None:
    claims = opened(app, query_of(app.authorize(response_mode="jwt", **changed).headers["Location"]))
    assert (claims["error"], claims["state"]) == (error, "a state")
    assert "code" not in claims


def test_error_of_a_posted_request_comes_signed(tenant: TestTenant) -> None:
    app = Application(tenant, register_application(tenant))
    sent = form(**app.parameters(response_mode="jwt", scope="unknown:scope"))
    response = app.browser.post(f"{app.issuer}/authorize", **sent)
    assert opened(app, query_of(response.headers["Location"]))["error"] == "invalid_scope"


@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_decision_of_the_user_comes_signed(tenant: TestTenant, decision: str) -> None:
    visitor = Visitor(tenant)
    app = begin(visitor, client={}, response_mode="jwt")
    visitor.sends(email=tenant.register().email, password=PASSWORD)
    assert visitor.at == "consent", visitor.text
    visitor.sends(**{decision: "1"})
    claims = opened(app, query_of(visitor.page.headers["Location"]))
    if decision == "allow":
        assert app.exchange(claims["code"]).status_code == 200
    else:
        assert claims["error"] == "access_denied"


def test_suspended_tenant_responds_signed(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    suspended = new_tenant()
    app = Application(suspended, register_application(suspended))
    assert Api().get(f"{app.issuer}/jwks").status_code == 200
    operator.patch(f"/uflow/admin/tenants/{suspended.id}", {"status": "suspended"})
    assert opened(app, query_of(app.authorize(response_mode="jwt").headers["Location"]))["error"] == "access_denied"


def test_app_with_a_scheme_of_its_own_gets_no_signed_form(tenant: TestTenant) -> None:
    own = "com.example.app:/callback"
    app = Application(tenant, register_application(tenant, redirect_uris=[own]))
    location = app.authorize(response_mode="form_post.jwt", redirect_uri=own).headers["Location"]
    assert query_of(location)["error"] == "invalid_request"


def test_signed_response_is_no_hint(app: Application) -> None:
    response = query_of(app.authorize(response_mode="jwt").headers["Location"])["response"]
    fields = query_of(app.authorize(id_token_hint=response).headers["Location"])
    assert fields["error"] == "invalid_request"


def test_signed_response_is_no_access_token(app: Application) -> None:
    response = query_of(app.authorize(response_mode="jwt").headers["Location"])["response"]
    assert Api(token=response).get(f"{app.issuer}/userinfo").status_code == 401

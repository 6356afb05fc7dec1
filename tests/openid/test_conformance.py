"""What modules of the OpenID Foundation's plans ask for and no other test shows; docs/conformance.md names each."""

import base64
import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

import jwt
import orjson
import pytest
from django.db.models import F
from django.test.utils import override_settings

from openid.models import AuthorizationCode
from tenants.entering.context import in_tenant
from tests.mfa.people import code_to, some_phone
from tests.openid.pages.visitor import Visitor, code_of
from tests.openid.relying_party import CALLBACK, Application, query_of, register_application
from tests.openid.test_authorize import error_of
from tests.openid.test_discovery import document
from tests.openid.test_issuers import jwks
from tests.openid.test_logout import BACK, Browser
from tests.openid.test_prompts import age
from tests.userflow.sessions.clients import FORM
from tests.world import PASSWORD, Api, TestTenant, User


@pytest.fixture
def user(tenant: TestTenant) -> User:
    return tenant.register()


@pytest.fixture
def visitor(tenant: TestTenant, user: User) -> Visitor:
    """A browser in which the user has signed in at the hosted pages."""
    visitor = Visitor(tenant)
    visitor.signs_in(user)
    return visitor


@pytest.fixture
def app(visitor: Visitor) -> Application:
    """An application in that browser."""
    app = Application(visitor.tenant, register_application(visitor.tenant, first_party=True))
    app.browser.client, app.browser.address = visitor.client, visitor.address
    return app


def id_token(app: Application, code: str) -> dict[str, Any]:
    """Return the claims of the ID token for a code, verified with the published keys."""
    response = app.exchange(code)
    assert response.status_code == 200, response.content
    token = response.json()["id_token"]
    key = jwt.PyJWKSet.from_dict(jwks(app.tenant))[jwt.get_unverified_header(token)["kid"]]
    return dict(jwt.decode(token, key, algorithms=["ES256", "RS256"], audience=app.client["client_id"]))


def userinfo(app: Application, **asked: Any) -> dict[str, Any]:
    return dict(Api(token=app.tokens(**asked)["access_token"]).get(f"{app.issuer}/userinfo").json())


# --- Basic OP --------------------------------------------------------------------------------------------------------


def test_request_without_nonce_gets_id_token_without(app: Application) -> None:
    assert "nonce" not in id_token(app, app.code(nonce=None))
    assert id_token(app, app.code(nonce="n"))["nonce"] == "n"


def test_scope_phone_returns_confirmed_number(app: Application, visitor: Visitor) -> None:
    assert not {"phone_number", "phone_number_verified"} & set(userinfo(app, scope="openid phone"))
    number = some_phone()
    visitor.opens("enroll/phone?own=1")
    visitor.sends(password=PASSWORD)
    visitor.sends(phone_number=number)
    visitor.sends(phone_number=number, sms_code=code_to(number))
    known = userinfo(app, scope="openid phone")
    assert (known["phone_number"], known["phone_number_verified"]) == (number, True)
    assert "phone_number" not in userinfo(app)


def test_order_of_scopes_and_parameters_is_ignored(app: Application, user: User) -> None:
    # oidcc-alternate-happy-flow: the request of oidcc-scope-email with its scopes and its parameters in another order.
    asked = app.parameters(scope="email openid")
    for names in (sorted(asked), sorted(asked, reverse=True)):
        query = urlencode({name: asked[name] for name in names})
        location = app.browser.get(f"{app.issuer}/authorize?{query}").headers["Location"]
        assert query_of(location)["state"] == asked["state"]
        tokens = app.exchange(query_of(location)["code"]).json()
        assert set(tokens["scope"].split()) == {"openid", "email"}
        known = Api(token=tokens["access_token"]).get(f"{app.issuer}/userinfo").json()
        assert (known["email"], known["email_verified"]) == (user.email, False)
        # The suite warns of these claims here (docs/conformance.md).
        claims = jwt.decode(tokens["id_token"], options={"verify_signature": False})
        assert (claims["email"], claims["nonce"]) == (user.email, asked["nonce"])


def test_missing_state_and_redirect_uri_with_query(tenant: TestTenant, user: User) -> None:
    other = f"{CALLBACK}/other?from=a"
    app = Application(tenant, register_application(tenant, first_party=True, redirect_uris=[CALLBACK, other]))
    app.sign_in(user)
    location = app.authorize(state=None, redirect_uri=other).headers["Location"]
    assert location.startswith(f"{other}&code=")
    fields = query_of(location)
    assert "state" not in fields
    assert app.exchange(fields["code"], redirect_uri=other).status_code == 200


@pytest.mark.parametrize(
    "asked",
    [
        {"display": "page"},
        {"display": "popup"},
        {"display": "touch"},
        {"display": "other"},
        {"ui_locales": "se"},
        {"claims_locales": "se"},
        {"acr_values": "1 2"},
        {"extra": "foobar"},
        {"login_hint": "another@example.com"},
    ],
    ids=str,
)
def test_optional_parameter_does_not_hinder_a_code(app: Application, user: User, asked: dict[str, str]) -> None:
    assert id_token(app, app.code(**asked))["sub"] == str(user.id)


def test_login_hint_fills_in_the_address(tenant: TestTenant, user: User) -> None:
    visitor = Visitor(tenant)
    app = Application(tenant, register_application(tenant, first_party=True))
    app.browser.client, app.browser.address = visitor.client, visitor.address
    visitor.page = app.authorize(login_hint=user.email)
    visitor._follow()
    assert f'value="{user.email}"' in visitor.text


def test_prompt_login_gives_a_later_auth_time(app: Application, visitor: Visitor, user: User) -> None:
    age(app, 100)
    first = id_token(app, app.code())
    visitor.page = app.authorize(prompt="login")
    visitor._follow()
    assert visitor.at == "signin"
    second = id_token(app, code_of(visitor.sends(email=user.email, password=PASSWORD)))
    assert second["sub"] == first["sub"] == str(user.id)
    assert second["auth_time"] >= first["auth_time"] + 100


def test_silent_request_keeps_user_and_auth_time(app: Application) -> None:
    age(app, 100)
    first = id_token(app, app.code())
    for asked in ({"prompt": "none"}, {"max_age": "10000"}):
        second = id_token(app, app.code(**asked))
        assert (second["sub"], second["auth_time"]) == (first["sub"], first["auth_time"])


def test_exceeded_max_age_gives_a_later_auth_time(app: Application, visitor: Visitor, user: User) -> None:
    age(app, 100)
    first = id_token(app, app.code(max_age="1000"))
    visitor.page = app.authorize(max_age="1")
    visitor._follow()
    second = id_token(app, code_of(visitor.sends(email=user.email, password=PASSWORD)))
    assert second["auth_time"] >= first["auth_time"] + 100


def test_id_token_hint_of_the_user_gives_a_code(app: Application, user: User) -> None:
    hint = app.tokens()["id_token"]
    assert id_token(app, app.code(id_token_hint=hint, prompt="none"))["sub"] == str(user.id)


def test_code_reused_after_half_a_minute_ends_tokens(app: Application) -> None:
    code = app.code()
    tokens = app.exchange(code).json()
    with in_tenant(app.tenant.id):
        earlier = timedelta(seconds=30)
        moved = {"used_at": F("used_at") - earlier, "expires_at": F("expires_at") - earlier}
        AuthorizationCode.objects.exclude(used_at=None).update(**moved)
    again = app.exchange(code)
    assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
    assert Api(token=tokens["access_token"]).get(f"{app.issuer}/userinfo").status_code == 401


def test_request_by_form_gives_a_code(app: Application) -> None:
    raw = urlencode(app.parameters()).encode()
    response = app.browser.post(f"{app.issuer}/authorize", raw=raw, content_type=FORM)
    assert id_token(app, code_of(response))["nonce"] == "a nonce"


def test_name_is_returned_as_essential_claim(app: Application) -> None:
    claims = orjson.dumps({"userinfo": {"name": {"essential": True}}}).decode()
    assert userinfo(app, claims=claims)["name"] == "Some One"
    assert "name" not in userinfo(app)


def test_refresh_token_is_useless_to_another_client(app: Application) -> None:
    thief = Application(app.tenant, register_application(app.tenant, first_party=True))
    token = app.tokens(scope="openid offline_access")["refresh_token"]
    stolen = thief.token(grant_type="refresh_token", refresh_token=token)
    assert (stolen.status_code, stolen.json()["error"]) == (400, "invalid_grant")
    assert app.token(grant_type="refresh_token", refresh_token=token).status_code == 200


def unsigned(claims: dict[str, Any]) -> str:
    """A JWT with `alg: none`."""
    parts = (orjson.dumps(part) for part in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


def test_redirect_uri_of_a_request_object_is_not_used(app: Application) -> None:
    request = unsigned(app.parameters())
    fields = error_of(app.authorize(request=request))
    assert fields["error"] == "request_not_supported"
    alone = app.authorize(request=request, redirect_uri=None)
    assert (alone.status_code, "Location" in alone.headers) == (400, False)


WITHOUT_PKCE = {"code_challenge": None, "code_challenge_method": None}
# As the suite sends them.
MODULES: dict[str, dict[str, Any]] = {
    "oidcc-server": {},
    "oidcc-response-type-missing": {"response_type": None},
    "oidcc-ensure-request-without-nonce-succeeds-for-code-flow": {"nonce": None},
    "oidcc-scope-profile": {"scope": "openid profile"},
    "oidcc-prompt-none-logged-in": {"prompt": "none"},
    "oidcc-max-age-10000": {"max_age": "10000"},
}


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("type_", ["public", "confidential"])
def test_suite_requests_without_pkce_are_rejected(module: str, type_: str, tenant: TestTenant, user: User) -> None:
    app = Application(tenant, register_application(tenant, first_party=True, type=type_))
    app.sign_in(user)
    assert error_of(app.authorize(**MODULES[module], **WITHOUT_PKCE))["error"] == "invalid_request"


@pytest.mark.parametrize(
    "changed", [{"request": "e30.e30."}, {"request_uri": "https://app.example.com/request"}], ids=str
)
def test_request_objects_without_pkce_are_not_supported(app: Application, changed: dict[str, str]) -> None:
    error = error_of(app.authorize(**changed, **WITHOUT_PKCE))["error"]
    assert error in ("invalid_request_object", "request_uri_not_supported")


def test_unregistered_redirect_uri_is_an_error_page(app: Application) -> None:
    # The module passes without PKCE too.
    for asked in (WITHOUT_PKCE, {}):
        response = app.authorize(redirect_uri=f"{CALLBACK}/not-registered", **asked)
        assert (response.status_code, "Location" in response.headers) == (400, False)


# --- Config OP, and discovery of RP-Initiated Logout -----------------------------------------------------------------


@override_settings(BASE_URL="https://id.example.com", TOKEN_ISSUER="https://id.example.com")
def test_metadata_has_the_values_that_plans_check(tenant: TestTenant) -> None:
    listed = document(tenant)
    assert listed["issuer"] == f"https://id.example.com/t/{tenant.slug}"
    for name, value in listed.items():
        if name.endswith(("_endpoint", "_uri")):
            assert urlsplit(value).scheme == "https", name
            assert not urlsplit(value).fragment, name
        if name.endswith("_supported") and not isinstance(value, bool):
            assert value, name
            assert len(set(value)) == len(value), name
    assert listed["end_session_endpoint"] == f"{listed['issuer']}/logout"
    assert listed["response_types_supported"] == ["code"]
    assert "public" in listed["subject_types_supported"]
    assert {"RS256", "ES256"} <= set(listed["id_token_signing_alg_values_supported"])
    assert "none" not in listed["id_token_signing_alg_values_supported"]
    assert {"openid", "profile", "email", "phone"} <= set(listed["scopes_supported"])
    assert {"sub", "name", "email", "phone_number"} <= set(listed["claims_supported"])
    assert (listed["request_parameter_supported"], listed["request_uri_parameter_supported"]) == (True, False)
    assert listed["claims_parameter_supported"] is True
    assert listed["authorization_response_iss_parameter_supported"] is True
    assert {"kty", "kid", "use", "alg"} <= set.intersection(*(set(key) for key in jwks(tenant)["keys"]))


# --- RP-Initiated Logout ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [{}, {"state": "a state"}], ids=str)
def test_logout_without_client_asks_and_stays(tenant: TestTenant, query: dict[str, str]) -> None:
    own = Browser(tenant)
    page = own.logout(**query)
    assert page.status_code == 200
    assert own.is_signed_in()
    response = own.post(**dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.content.decode())))
    # There is no application to return to.
    assert (response.status_code, response.headers["Location"]) == (303, f"/t/{tenant.slug}/signin")
    assert not own.is_signed_in()


def test_logout_rejects_unsigned_and_changed_hints(tenant: TestTenant) -> None:
    own = Browser(tenant)
    claims = jwt.decode(own.hint, options={"verify_signature": False})
    header, _, signature = own.hint.split(".")
    body = base64.urlsafe_b64encode(orjson.dumps({**claims, "sub": "x"})).decode().rstrip("=")
    for hint in (unsigned(claims), f"{header}.{body}.{signature}"):
        assert own.logout(id_token_hint=hint, post_logout_redirect_uri=BACK).status_code == 400
    assert own.is_signed_in()

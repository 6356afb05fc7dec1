"""A client gets `security_profile: fapi2`: what it got under its former rules ends with the change."""

from collections.abc import Callable
from typing import Any

from openid.models import AuthorizationCode, AuthorizationRequest
from tenants.entering.context import in_tenant
from tests.openid.dpop_keys import DpopKey
from tests.openid.logout_scene import deliver
from tests.openid.profiled_application import ProfiledApplication, profiled_application
from tests.openid.relying_party import Application, page_of, query_of, register_application
from tests.openid.test_code_exchange import is_active
from tests.tenants.records import sessions_locked
from tests.userflow.clients.keys import key_set, new_key, public_jwk
from tests.userflow.clients.test_clients import path
from tests.userflow.sessions.aged import aged
from tests.userflow.sessions.clients import basic, form, make_client, own_token
from tests.world import Api, TestTenant
from userflow.accounts.session_models import EndUserSession
from userflow.clients.models import PendingClientChange

VALIDATE = "/authmgr/validate"


def profile(**fields: Any) -> dict[str, Any]:
    return {"security_profile": "fapi2", "jwks": key_set(public_jwk(new_key())), **fields}


def application(tenant: TestTenant, **fields: Any) -> Application:
    """Return a confidential first-party client with a secret, and a browser with a user."""
    app = Application(tenant, register_application(tenant, type="confidential", first_party=True, **fields))
    app.sign_in(tenant.register())
    return app


def exchanged(app: Application, headers: dict[str, str] | None = None, **changed: Any) -> dict[str, Any]:
    response = app.exchange(app.code(**changed), headers={**basic(app.client), **(headers or {})})
    assert response.status_code == 200, response.content
    return dict(response.json())


def set_profile(app: Application) -> None:
    response = app.tenant.api.patch(path(app.tenant, app.client["client_id"]), profile())
    assert response.status_code == 200, response.content


def userinfo(app: Application, tokens: dict[str, Any]) -> Any:
    return Api(token=tokens["access_token"]).get(f"{app.issuer}/userinfo")


def test_sessions_with_bearer_tokens_end(tenant: TestTenant) -> None:
    app, other = application(tenant), application(tenant)
    tokens, kept = exchanged(app), exchanged(other)
    set_profile(app)
    assert (userinfo(app, tokens).status_code, is_active(app, tokens)) == (401, False)
    with in_tenant(tenant.id):
        ended = EndUserSession.objects.get(client_id=app.client["client_id"])
    assert ended.end_reason == "security_profile_set"
    # The secret has ended too.
    refresh = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    assert app.token(basic(app.client), **refresh).json()["error"] == "invalid_client"
    assert (userinfo(other, kept).status_code, is_active(other, kept)) == (200, True)


def test_sessions_that_are_bound_to_a_key_end(tenant: TestTenant) -> None:
    # Of a key the platform knows the thumbprint only: it may sign by RS256.
    app, key = application(tenant), DpopKey("RS256")
    tokens = exchanged(app, {"DPoP": key.proof("POST", f"{app.issuer}/token")})
    set_profile(app)
    at = f"{app.issuer}/userinfo"
    assert Api().get(at, headers=key.headers("GET", at, tokens["access_token"])).status_code == 401
    assert not is_active(app, tokens)


def test_own_tokens_of_the_client_end(tenant: TestTenant) -> None:
    client, other = make_client(tenant), make_client(tenant)
    token, kept = own_token(client), own_token(other)
    assert Api(token=token).get(VALIDATE).status_code == 200
    assert tenant.api.patch(path(tenant, client["id"]), profile()).status_code == 200
    assert Api(token=token).get(VALIDATE).status_code == 401
    known = Api().post("/authmgr/token/introspect", **form(token=token), headers=basic(other)).json()
    assert known == {"active": False}
    assert Api(token=kept).get(VALIDATE).status_code == 200


def test_codes_and_requests_from_before_end(tenant: TestTenant) -> None:
    app = application(tenant)
    app.code()
    new_browser = Application(tenant, app.client)
    begun = new_browser.authorize()
    pushed = app.new_caller().post(f"{app.issuer}/par", **form(**app.parameters()), headers=basic(app.client))
    set_profile(app)
    own = {"client_id": app.client["client_id"]}
    with in_tenant(tenant.id):
        assert not AuthorizationCode.objects.filter(**own, used_at=None).exists()
        assert not AuthorizationRequest.objects.filter(**own).exists()
    assert new_browser.browser.get(page_of(begun)).status_code == 400
    brought = app.browser.get(f"{app.issuer}/authorize", {**own, "request_uri": pushed.json()["request_uri"]})
    assert brought.status_code == 400


def test_request_that_was_not_pushed_ends_when_it_has_to_be(tenant: TestTenant) -> None:
    app = Application(tenant, register_application(tenant))
    begun = page_of(app.authorize())
    assert app.browser.get(begun).status_code == 200
    assert tenant.api.patch(path(tenant, app.client["id"]), {"require_par": True}).status_code == 200
    assert app.browser.get(begun).status_code == 400


def test_profile_that_sessions_cannot_follow_counts_at_once(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    app, other = application(tenant), application(tenant)
    tokens = exchanged(app)
    with sessions_locked(tenant):
        set_profile(app)
    assert PendingClientChange.objects.filter(pk=app.client["client_id"]).exists()
    # The session has not ended yet, but nothing takes its token.
    assert (is_active(app, tokens), userinfo(app, tokens).status_code) == (True, 401)
    introspection = form(token=tokens["access_token"])
    known = Api().post(f"{app.issuer}/introspect", **introspection, headers=basic(other.client)).json()
    assert known == {"active": False}
    deliver()
    assert not PendingClientChange.objects.filter(pk=app.client["client_id"]).exists()
    assert not is_active(app, tokens)


def test_other_changes_of_a_profiled_client_end_nothing(tenant: TestTenant) -> None:
    app = profiled_application(tenant)
    tokens = app.exchange(app.code()).json()
    own = path(tenant, app.client["client_id"])
    for changes in ({"name": "Renamed"}, {"security_profile": "fapi2"}, {"refresh_token_rotation": None}):
        assert tenant.api.patch(own, changes).status_code == 200
    assert app.userinfo(tokens["access_token"]).status_code == 200
    assert app.refresh(tokens["refresh_token"]).status_code == 200


def test_setting_the_profile_requires_recent_authentication(tenant: TestTenant) -> None:
    app, met = application(tenant), profiled_application(tenant)
    tokens = exchanged(app)
    # One whose settings are those of the profile already.
    without = path(tenant, met.client["client_id"])
    assert tenant.api.patch(without, {"security_profile": None, "first_party": False}).status_code == 200
    stale = Api(token=aged(str(tenant.api.token), 16))
    for response in (
        stale.patch(path(tenant, app.client["client_id"]), profile()),
        stale.patch(without, {"security_profile": "fapi2"}),
    ):
        assert (response.status_code, response.json()["code"]) == (401, "insufficient_user_authentication")
    assert userinfo(app, tokens).status_code == 200


def test_user_of_the_browser_stays_signed_in(tenant: TestTenant) -> None:
    app, key = application(tenant), new_key()
    exchanged(app)
    changes = profile(jwks=key_set(public_jwk(key)))
    assert tenant.api.patch(path(tenant, app.client["client_id"]), changes).status_code == 200
    again = ProfiledApplication(tenant, app.client, browser=app.browser, key=key)
    location = again.bring(again.push(prompt="none")).headers["Location"]
    assert again.exchange(query_of(location)["code"]).status_code == 200

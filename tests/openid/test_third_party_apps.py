"""What a third-party application may do with the access token of its user at the platform's endpoints: not the account."""

from typing import Any
from uuid import uuid4

import jwt
import pytest

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant
from tests.copies import create_client
from tests.mfa.webauthn.passkeys import end_users_of, new_authenticator
from tests.openid.application_sessions import access_token, allow, browser, open_application
from tests.openid.dpop_keys import DpopKey
from tests.userflow.sessions.clients import basic, form, make_client
from tests.world import PASSWORD, Api, TestTenant, User

RESOURCE = "https://orders.example.com"


@pytest.fixture
def person(tenant: TestTenant) -> User:
    return tenant.register()


def token_of(tenant: TestTenant, person: User, *, first_party: bool = False, **how: Any) -> str:
    """Return a token for the platform's endpoints, of an application of the user."""
    if first_party:
        allow(tenant, audiences=["identity-api"])
        client_id = tenant.client_id
    else:
        client_id = create_client(tenant_id=tenant.id, name="Orders", audiences=["identity-api"]).pk
    opened = open_application(tenant, browser(tenant, person.email), client_id=client_id, **how)
    return access_token(tenant, opened, first_party=first_party)


def test_third_party_cannot_enroll_a_passkey(tenant: TestTenant, person: User) -> None:
    home, api = end_users_of(tenant), Api(token=token_of(tenant, person))
    assert home.begin_registration(api, person).status_code == 403
    options = home.begin_registration(tenant.as_user(person), person).json()
    response = home.finish_registration(api, person, new_authenticator().create(options))
    assert response.status_code == 403, response.content
    assert tenant.as_user(person).get("/authmgr/profile").json()["mfa_methods"] == []


def test_first_party_can_enroll_a_passkey(tenant: TestTenant, person: User) -> None:
    home = end_users_of(tenant)
    home.enrol(Api(token=token_of(tenant, person, first_party=True)), person)


ACCOUNT_CALLS: dict[str, tuple[str, str, Any]] = {
    "profile": ("get", "/authmgr/profile", None),
    "name": ("put", "/authmgr/profile", {"name": "Mallory"}),
    "address": ("put", "/authmgr/profile", {"email": "mallory@example.com", "current_password": PASSWORD}),
    "password": (
        "post",
        "/authmgr/profile/password",
        {"current_password": PASSWORD, "new_password": "a long new pass phrase"},
    ),
    "deletion": ("post", "/authmgr/profile/delete", {"current_password": PASSWORD}),
    "sessions": ("get", "/authmgr/sessions", None),
    "sign-out everywhere": ("post", "/authmgr/logout", {"all": True}),
    "record": ("get", "/uflow/user/enduser/{tenant}/{user}", None),
    "record's name": ("put", "/uflow/user/enduser/{tenant}/{user}", {"name": "Mallory"}),
    "factors": ("get", "/webauthn/factors", None),
    "passkey's name": ("patch", f"/webauthn/factors/{uuid4()}", {"name": "Mallory"}),
    "totp": ("post", "/webauthn/totp/beginSetup", {"email": "{email}"}),
    "backup codes": ("post", "/webauthn/totp/regenerateBackupCodes", {"email": "{email}"}),
}


@pytest.mark.parametrize("call", ACCOUNT_CALLS)
def test_third_party_cannot_manage_the_account(tenant: TestTenant, person: User, call: str) -> None:
    method, path, body = ACCOUNT_CALLS[call]
    if body and body.get("email") == "{email}":
        body = {"email": person.email, "tenant_id": str(tenant.id)}
    settings = f"/uflow/admin/tenants/{tenant.id}/settings"
    assert tenant.api.patch(settings, {"settings": {"account_deletion": "on"}}).status_code == 200
    api = Api(token=token_of(tenant, person))
    path = path.format(tenant=tenant.id, user=person.id)
    response = getattr(api, method)(path, *([body] if body is not None else []))
    assert response.status_code == 403, response.content
    assert b"A third-party application cannot manage" in response.content
    profile = tenant.as_user(person).get("/authmgr/profile").json()
    assert (profile["name"], profile["email"], profile["mfa_methods"]) == ("Some One", person.email, [])


def test_third_party_ends_only_its_own_session(tenant: TestTenant, person: User) -> None:
    own = tenant.as_user(person)
    [listed] = own.get("/authmgr/sessions").json()["sessions"]
    api = Api(token=token_of(tenant, person))
    assert api.delete(f"/authmgr/sessions/{listed['id']}").status_code == 403
    assert api.delete("/authmgr/sessions", query={"user_id": str(person.id)}).status_code == 403
    assert own.get("/authmgr/validate").status_code == 200
    assert api.post("/authmgr/logout", {}).status_code == 200
    assert api.get("/authmgr/validate").status_code == 401
    assert own.get("/authmgr/validate").status_code == 200


# --- what others learn from its tokens -------------------------------------------------------------------------------


def introspected(tenant: TestTenant, token: str) -> dict[str, Any]:
    sent = form(token=token)
    response = Api().post("/authmgr/token/introspect", **sent, headers=basic(make_client(tenant)))
    assert response.json()["active"] is True
    return dict(response.json())


def test_introspection_shows_only_consented_claims(tenant: TestTenant, person: User) -> None:
    found = introspected(tenant, token_of(tenant, person))
    assert not {"username", "roles", "groups"} & set(found)
    assert found["sub"] == str(person.id)
    found = introspected(tenant, token_of(tenant, person, scopes=("openid", "email", "roles", "groups")))
    assert (found["username"], found["roles"], found["groups"]) == (person.email, ["user"], [])
    found = introspected(tenant, token_of(tenant, person, first_party=True))
    assert (found["username"], found["roles"], found["groups"]) == (person.email, ["user"], [])


def test_validate_shows_only_consented_claims(tenant: TestTenant, person: User) -> None:
    for scopes, roles in ((("openid",), []), (("openid", "roles"), ["user"])):
        api = Api(token=token_of(tenant, person, scopes=scopes))
        found = api.get("/authmgr/validate").json()
        assert (found["roles"], found["groups"]) == (roles, [])
        assert person.email not in str(found)


def test_step_up_keeps_audiences_of_the_token(tenant: TestTenant, person: User) -> None:
    allow(tenant, audiences=["identity-api", RESOURCE], first_party=True)
    opened = open_application(tenant, browser(tenant, person.email), audiences=("identity-api", RESOURCE))
    opened.session.audiences = ["identity-api"]
    token = access_token(tenant, opened, first_party=True)
    response = Api(token=token).post("/authmgr/step-up", {"password": person.password})
    raised = jwt.decode(response.json()["access_token"], options={"verify_signature": False})
    assert raised["aud"] == "identity-api"
    assert response.json()["token_type"] == "Bearer"


def test_third_party_token_steps_up_nothing(tenant: TestTenant, person: User) -> None:
    for path in ("/authmgr/step-up", "/authmgr/step-up/options"):
        response = Api(token=token_of(tenant, person)).post(path, {"password": person.password})
        assert (response.status_code, response.json()["code"]) == (403, "forbidden"), response.content
    with in_tenant(tenant.id):
        assert not TenantEvent.objects.filter(action="session.stepped_up", actor_id=person.id).exists()
    own = Api(token=token_of(tenant, person, first_party=True))
    assert own.post("/authmgr/step-up", {"password": person.password}).status_code == 200


def test_step_up_names_the_type_of_a_bound_token(tenant: TestTenant, person: User) -> None:
    key, path = DpopKey(), "/authmgr/step-up"
    token = token_of(tenant, person, binding=key.jkt, first_party=True)
    response = Api().post(path, {"password": person.password}, headers=key.headers("POST", path, token))
    assert response.status_code == 200, response.content
    assert response.json()["token_type"] == "DPoP"

"""Userinfo, introspection and revocation at a tenant's issuer."""

from typing import Any
from urllib.parse import urlencode

import pytest

from tenants.entering.context import in_tenant
from tests.openid.application_sessions import access_token, browser, open_application
from tests.openid.dpop_keys import DpopKey
from tests.userflow.sessions.clients import FORM, basic, form, make_client, own_token
from tests.world import Api, TestTenant, User, capture_statements
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.sessions.ending import end_sessions


def userinfo(tenant: TestTenant, token: str | None, **how: Any) -> Any:
    return Api(token=token).get(f"/t/{tenant.slug}/userinfo", **how)


def token_for(tenant: TestTenant, person: User, *scopes: str, **how: Any) -> str:
    opened = open_application(tenant, browser(tenant, person.email), scopes=scopes, audiences=(), **how)
    return access_token(tenant, opened)


def post(tenant: TestTenant, name: str, **how: Any) -> Any:
    headers = how.pop("headers", {})
    return Api().post(f"/t/{tenant.slug}/{name}", **form(**how), headers=headers)


# --- userinfo --------------------------------------------------------------------------------------------------------


def test_userinfo_returns_claims_of_scopes(tenant: TestTenant) -> None:
    person = tenant.register()
    assert userinfo(tenant, token_for(tenant, person, "openid")).json() == {"sub": str(person.id)}
    response = userinfo(tenant, token_for(tenant, person, "openid", "email", "profile", "roles"))
    assert response.headers["Cache-Control"] == "no-store"
    known = response.json()
    assert (known["email"], known["email_verified"], known["name"]) == (person.email, False, "Some One")
    assert known["roles"] == ["user"]
    assert not {"groups", "locale"} & known.keys()
    assert tenant.as_user(person).put("/authmgr/profile", {"language": "fr"}).status_code == 200
    assert userinfo(tenant, token_for(tenant, person, "openid", "profile")).json()["locale"] == "fr"


def test_userinfo_returns_claims_requested_by_name(tenant: TestTenant) -> None:
    person = tenant.register()
    token = token_for(tenant, person, "openid", userinfo_claims=("email",))
    assert userinfo(tenant, token).json() == {"sub": str(person.id), "email": person.email}


def test_userinfo_takes_token_in_form(tenant: TestTenant) -> None:
    person = tenant.register()
    token, path = token_for(tenant, person, "openid"), f"/t/{tenant.slug}/userinfo"
    raw = urlencode({"access_token": token}).encode()
    assert Api().post(path, raw=raw, content_type=FORM).json() == {"sub": str(person.id)}
    assert Api(token=token).post(path).json() == {"sub": str(person.id)}
    assert Api(token=token).post(path, raw=raw, content_type=FORM).status_code == 400


def test_userinfo_rejects_other_tokens(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person = tenant.register()
    foreign = token_for(other_tenant, other_tenant.register(), "openid")
    pair = tenant.sign_in(person)
    others = [
        foreign,
        pair["access_token"],
        pair["refresh_token"],
        own_token(make_client(tenant)),
        tenant.api.token,
        "x",
    ]
    for token in others:
        response = userinfo(tenant, token)
        assert response.status_code == 401, token
        assert response.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
    assert userinfo(tenant, None).headers["WWW-Authenticate"] == 'Bearer realm="api"'


def test_userinfo_requires_scope_openid(tenant: TestTenant) -> None:
    response = userinfo(tenant, token_for(tenant, tenant.register(), "email"))
    assert response.status_code == 403
    assert response.headers["WWW-Authenticate"] == 'Bearer error="insufficient_scope", scope="openid"'


def test_userinfo_of_ended_session_is_rejected(tenant: TestTenant) -> None:
    person = tenant.register()
    token = token_for(tenant, person, "openid")
    with in_tenant(tenant.id):
        end_sessions(END_USERS, user_id=person.id, reason="signed_out")
    assert userinfo(tenant, token).status_code == 401


def test_userinfo_takes_bound_token_with_proof(tenant: TestTenant) -> None:
    key, person = DpopKey(), tenant.register()
    token = token_for(tenant, person, "openid", binding=key.jkt)
    path = f"/t/{tenant.slug}/userinfo"
    assert userinfo(tenant, None, headers=key.headers("GET", path, token)).status_code == 200
    assert userinfo(tenant, token).status_code == 401


def test_userinfo_costs_one_statement(tenant: TestTenant) -> None:
    token = token_for(tenant, tenant.register(), "openid", "email")
    userinfo(tenant, token)
    with capture_statements() as captured:
        assert userinfo(tenant, token).status_code == 200
    assert captured.counts == (0, 1)


# --- introspection and revocation ------------------------------------------------------------------------------------


def test_introspect_shows_tokens_to_own_clients(tenant: TestTenant, other_tenant: TestTenant) -> None:
    client, foreign = make_client(tenant), make_client(other_tenant)
    token = token_for(tenant, tenant.register(), "openid", "email")
    known = post(tenant, "introspect", token=token, headers=basic(client)).json()
    assert (known["active"], known["scope"]) == (True, "openid email")
    assert post(tenant, "introspect", token=token, headers=basic(foreign)).json()["error"] == "invalid_client"
    assert post(other_tenant, "introspect", token=token, headers=basic(foreign)).json() == {"active": False}
    public = post(tenant, "introspect", token=token, client_id=str(tenant.client_id))
    assert public.json()["error"] == "invalid_client"


def test_revoke_ends_application_session(tenant: TestTenant, other_tenant: TestTenant) -> None:
    opened = open_application(tenant, browser(tenant))
    token = opened.refresh_token or ""
    foreign = post(other_tenant, "revoke", token=token, client_id=str(other_tenant.client_id))
    assert foreign.json()["error"] == "unauthorized_client"
    for sent in (token, token, "unknown"):
        response = post(tenant, "revoke", token=sent, client_id=str(tenant.client_id))
        assert (response.status_code, response.json()) == (200, {})
    with in_tenant(tenant.id):
        assert not EndUserSession.objects.filter(pk=opened.session.pk, ended_at=None).exists()


@pytest.mark.parametrize("name", ["userinfo", "introspect", "revoke"])
def test_unknown_tenant_is_404(name: str) -> None:
    path = f"/t/unknown/{name}"
    response = Api().get(path) if name == "userinfo" else Api().post(path, **form(token="x"))
    assert response.status_code == 404

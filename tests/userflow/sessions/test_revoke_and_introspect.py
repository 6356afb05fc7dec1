"""Revocation (RFC 7009) and introspection (RFC 7662)."""

from datetime import timedelta
from io import StringIO
from typing import Any

import jwt
import pytest
from django.core.management import call_command
from django.utils.timezone import now

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant
from tests.tenants.faults.test_one_tenant import gone
from tests.userflow.sessions.clients import basic, form, make_client, own_token
from tests.userflow.sessions.test_refresh import refresh
from tests.world import Api, TestTenant, capture_statements, sign_in_admin
from userflow.sessions.models import RevokedToken, SigningKey, TenantRevokedToken

REVOKE, INTROSPECT = "/authmgr/token/revoke", "/authmgr/token/introspect"
VALIDATE = "/authmgr/validate"


def revoke(token: str, **how: Any) -> Any:
    headers = how.pop("headers", {})
    return Api().post(REVOKE, **form(token=token, **how), headers=headers)


def introspect(token: str, *, by: Api | None = None, headers: dict[str, str] | None = None) -> Any:
    return (by or Api()).post(INTROSPECT, **form(token=token), headers=headers)


# --- revoke ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["access_token", "refresh_token"])
def test_revoke_of_either_user_token_ends_session(tenant: TestTenant, which: str) -> None:
    person = tenant.register()
    pair, other = tenant.sign_in(person), tenant.as_user(person)
    response = revoke(pair[which], client_id=str(tenant.client_id), token_type_hint=which)
    assert (response.status_code, response.json()) == (200, {})
    assert Api(token=pair["access_token"]).get(VALIDATE).status_code == 401
    assert refresh(pair["refresh_token"]).json()["error"] == "invalid_grant"
    assert other.get(VALIDATE).status_code == 200
    with in_tenant(tenant.id):
        assert TenantEvent.objects.filter(action="session.revoked", actor_id=str(person.id)).count() == 1


def test_revoke_of_client_token_ends_only_that_one(tenant: TestTenant) -> None:
    client = make_client(tenant)
    one, two = own_token(client), own_token(client)
    assert revoke(one, headers=basic(client)).status_code == 200
    assert (Api(token=one).get(VALIDATE).status_code, Api(token=two).get(VALIDATE).status_code) == (401, 200)
    assert Api(token=one + "=").get(VALIDATE).status_code == 401
    assert revoke(one, headers=basic(client)).status_code == 200
    with in_tenant(tenant.id):
        assert TenantEvent.objects.filter(action="client_token.revoked", target_id=client["id"]).count() == 2


def test_revocation_of_client_token_is_stored_in_the_tenants_database(new_tenant: Any) -> None:
    tenant = new_tenant()
    client = make_client(tenant)
    token = own_token(client)
    jti = jwt.decode(token, options={"verify_signature": False})["jti"]
    with gone(tenant):
        assert revoke(token, headers=basic(client)).status_code == 503
    with capture_statements() as seen:
        assert revoke(token, headers=basic(client)).status_code == 200
    assert not [sql for sql in seen.default if sql.startswith(("INSERT", "UPDATE", "DELETE"))]
    with in_tenant(tenant.id):
        assert TenantRevokedToken.objects.filter(jti=jti).exists()


def test_revoke_of_admin_token_needs_no_client(new_tenant: Any) -> None:
    own = new_tenant()
    pair = sign_in_admin(own.admin.username)
    assert revoke(pair["refresh_token"]).status_code == 200
    assert Api(token=pair["access_token"]).get(VALIDATE).status_code == 401


@pytest.mark.parametrize("token", ["x", "a.b.c", "ä", "e30.e30.e30"])
def test_revoke_of_unknown_token_succeeds(token: str) -> None:
    assert revoke(token).status_code == 200


def test_revoke_rejects_token_of_other_client(tenant: TestTenant, other_tenant: TestTenant) -> None:
    pair = tenant.sign_in(tenant.register())
    other, foreign = make_client(tenant), make_client(other_tenant)
    for client in (other, foreign):
        response = revoke(pair["refresh_token"], headers=basic(client))
        assert (response.status_code, response.json()["error"]) == (400, "unauthorized_client")
    wrong = revoke(own_token(other), client_id=other["client_id"])
    assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_client")
    assert revoke(own_token(other)).status_code == 401
    assert Api(token=pair["access_token"]).get(VALIDATE).status_code == 200


def test_revoke_requires_token(api: Api) -> None:
    response = api.post(REVOKE, **form(token_type_hint="access_token"))
    assert (response.status_code, response.json()["error"]) == (400, "invalid_request")


def test_client_logout_ends_one_or_all_tokens(tenant: TestTenant) -> None:
    client = make_client(tenant)
    one, two, three = (own_token(client) for _ in range(3))
    assert Api(token=one).post("/authmgr/logout").status_code == 200
    assert (Api(token=one).get(VALIDATE).status_code, Api(token=two).get(VALIDATE).status_code) == (401, 200)
    Api(token=two).post("/authmgr/logout", {"all": True})
    assert {Api(token=token).get(VALIDATE).status_code for token in (two, three)} == {401}
    assert Api(token=own_token(client)).get(VALIDATE).status_code == 200


def test_client_logout_leaves_other_clients_alone(tenant: TestTenant) -> None:
    one, other = (own_token(make_client(tenant)) for _ in range(2))
    assert Api(token=one).post("/authmgr/logout", {"all": True}).status_code == 200
    assert [Api(token=token).get(VALIDATE).status_code for token in (one, other)] == [401, 200]


def test_expired_revocations_and_keys_are_deleted(tenant: TestTenant) -> None:
    one, two = (own_token(make_client(tenant)) for _ in range(2))
    jtis = []
    for token in (one, two):
        claims = jwt.decode(token, options={"verify_signature": False})
        jtis.append(claims["jti"])
        Api(token=token).post("/authmgr/logout")
    over = now() - timedelta(seconds=1)
    # Of the release before.
    RevokedToken.objects.create(jti=jtis[0], expires_at=over)
    with in_tenant(tenant.id):
        TenantRevokedToken.objects.filter(jti=jtis[0]).update(expires_at=over)
    SigningKey.objects.create(
        kid="dead", public_jwk={}, private_sealed=b"", signs_from=now(), verifies_until=now() - timedelta(seconds=1)
    )
    for owner in ("platform", tenant.slug):
        with pytest.raises(SystemExit, match="0"):
            call_command("purge_expired", owner, stdout=StringIO())
    assert not RevokedToken.objects.filter(jti__in=jtis).exists()
    with in_tenant(tenant.id):
        stored = TenantRevokedToken.objects.filter(jti__in=jtis)
        assert list(stored.values_list("jti", flat=True)) == [jtis[1]]
    assert not SigningKey.objects.filter(kid="dead").exists()
    assert {Api(token=token).get(VALIDATE).status_code for token in (one, two)} == {200, 401}


# --- introspect ------------------------------------------------------------------------------------------------------


def test_introspection_returns_current_state(tenant: TestTenant) -> None:
    person = tenant.register()
    pair, client = tenant.sign_in(person), make_client(tenant)
    response = introspect(pair["access_token"], headers=basic(client))
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    known = response.json()
    assert known["active"] is True
    assert (known["sub"], known["username"], known["kind"]) == (str(person.id), person.email, "end_user")
    assert (known["tenant_id"], known["client_id"]) == (str(tenant.id), str(tenant.client_id))
    assert (known["token_type"], known["aud"]) == ("Bearer", "identity-api")
    assert {"exp", "iat", "nbf", "iss", "jti", "sid", "roles", "permissions", "scope"} <= set(known)


def test_introspection_of_refresh_token(tenant: TestTenant) -> None:
    pair, client = tenant.sign_in(tenant.register()), make_client(tenant)
    known = introspect(pair["refresh_token"], headers=basic(client)).json()
    assert (known["active"], known["token_type"]) == (True, "refresh_token")
    assert "jti" not in known
    refresh(pair["refresh_token"])
    assert introspect(pair["refresh_token"], headers=basic(client)).json() == {"active": False}


def test_introspection_accepts_bearer_callers(tenant: TestTenant, operator: Api) -> None:
    token = tenant.sign_in(tenant.register())["access_token"]
    client = Api(token=own_token(make_client(tenant)))
    for caller in (tenant.api, client, operator):
        assert introspect(token, by=caller).json()["active"] is True


def test_introspection_hides_tokens_of_other_tenants(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person = tenant.register()
    token = tenant.sign_in(person)["access_token"]
    foreign = make_client(other_tenant)
    inactive = [
        introspect(token, headers=basic(foreign)),
        introspect(token, by=other_tenant.api),
        introspect(token, by=tenant.as_user(person)),
        introspect(str(tenant.api.token), by=other_tenant.api),
        introspect("x", by=tenant.api),
    ]
    assert {(response.status_code, response.content) for response in inactive} == {(200, b'{"active":false}')}
    refused = [
        introspect(token),
        introspect(token, headers={"Authorization": "Bearer x"}),
        Api().post(INTROSPECT, **form(token=token, client_id=str(tenant.client_id))),
        introspect(token, headers=basic(foreign, "ics_wrong")),
    ]
    assert {(response.status_code, response.json()["error"]) for response in refused} == {(401, "invalid_client")}


def test_introspection_hides_operator_tokens_from_tenants(tenant: TestTenant, operator: Api) -> None:
    assert introspect(str(operator.token), by=tenant.api).json() == {"active": False}


def test_introspection_of_ended_session_is_inactive(tenant: TestTenant) -> None:
    client, person = make_client(tenant), tenant.register()
    pair = tenant.sign_in(person)
    Api(token=pair["access_token"]).post("/authmgr/logout")
    off = make_client(tenant)
    token = own_token(off)
    assert introspect(token, by=tenant.api).json()["active"] is True
    tenant.api.patch(f"/clientms/tenants/{tenant.id}/clients/{off['id']}/deactivate")
    for spent in (pair["access_token"], pair["refresh_token"], token):
        assert introspect(spent, headers=basic(client)).json() == {"active": False}


def test_introspection_statement_counts(tenant: TestTenant) -> None:
    token, client = tenant.sign_in(tenant.register())["access_token"], make_client(tenant)
    introspect(token, headers=basic(client))
    with capture_statements() as seen:
        introspect(token, headers=basic(client))
    assert seen.counts == (0, 1)

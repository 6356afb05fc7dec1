"""Refresh tokens rotate; the loser of a race gets the winner's answer, a later re-use ends the session."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections
from django.db.models import F

from identity_platform.audit.models import PlatformEvent, TenantEvent
from identity_platform.crypto import hash_token
from tenants.entering.context import in_tenant
from tests.userflow.sessions.clients import basic, form, make_client
from tests.world import Api, TestTenant, capture_statements
from userflow.accounts.session_models import AdminRefreshToken, EndUserRefreshToken, EndUserSession
from userflow.sessions import queries

PATH = "/authmgr/token"
VALIDATE = "/authmgr/validate"


def refresh(token: str, **how: Any) -> Any:
    headers = how.pop("headers", {})
    return Api().post(PATH, **form(grant_type="refresh_token", refresh_token=token, **how), headers=headers)


def eleven_seconds_pass(tenant: TestTenant) -> None:
    with in_tenant(tenant.id):
        EndUserRefreshToken.objects.exclude(used_at=None).update(used_at=F("used_at") - timedelta(seconds=11))


def test_refresh_returns_new_pair_of_same_session(tenant: TestTenant) -> None:
    first = tenant.sign_in(tenant.register())
    response = refresh(first["refresh_token"], client_id=str(tenant.client_id))
    assert response.status_code == 200, response.content
    second = response.json()
    assert second["refresh_token"] != first["refresh_token"]
    assert set(second) == {"access_token", "refresh_token", "token_type", "expires_in"}
    assert response.headers["Cache-Control"] == "no-store"
    for token in (first["access_token"], second["access_token"]):
        assert Api(token=token).get(VALIDATE).status_code == 200
    assert Api(token=second["access_token"]).post("/authmgr/logout").json()["sessions_ended"] == 1
    assert Api(token=first["access_token"]).get(VALIDATE).status_code == 401


def test_parallel_refreshes_get_same_successor(tenant: TestTenant) -> None:
    first = tenant.sign_in(tenant.register())["refresh_token"]

    def use(_: int) -> tuple[int, str]:
        try:
            response = refresh(first)
            return response.status_code, response.json().get("refresh_token", "")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(20) as pool:
        responses = set(pool.map(use, range(20)))
    assert len(responses) == 1
    assert next(iter(responses))[0] == 200


def test_refresh_reuse_ends_session_and_is_audited(tenant: TestTenant) -> None:
    person = tenant.register()
    first = tenant.sign_in(person)
    second = refresh(first["refresh_token"]).json()
    eleven_seconds_pass(tenant)
    again = refresh(first["refresh_token"])
    assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
    assert Api(token=second["access_token"]).get(VALIDATE).status_code == 401
    assert refresh(second["refresh_token"]).json()["error"] == "invalid_grant"
    with in_tenant(tenant.id):
        session = EndUserSession.objects.get(user_id=person.id)
        assert session.end_reason == "refresh_reused"
        event = TenantEvent.objects.get(action="refresh_token.reused", target_id=str(session.pk))
        assert (event.outcome, event.actor_id) == ("refused", str(person.id))


def test_refresh_with_predecessor_of_used_token_is_reuse(tenant: TestTenant) -> None:
    first = tenant.sign_in(tenant.register())
    second = refresh(first["refresh_token"]).json()
    assert refresh(first["refresh_token"]).json()["refresh_token"] == second["refresh_token"]
    third = refresh(second["refresh_token"]).json()
    # Within the ten seconds: the holder has used the successor, so this caller is another one.
    assert refresh(first["refresh_token"]).json()["error"] == "invalid_grant"
    assert Api(token=third["access_token"]).get(VALIDATE).status_code == 401
    assert refresh(third["refresh_token"]).json()["error"] == "invalid_grant"


def test_refresh_reuse_ends_admin_session(new_tenant: Any) -> None:
    own = new_tenant()
    from tests.world import sign_in_admin

    first = sign_in_admin(own.admin.username)
    second = refresh(first["refresh_token"]).json()
    assert refresh(first["refresh_token"]).json()["refresh_token"] == second["refresh_token"]
    AdminRefreshToken.objects.filter(session__user_id=own.admin.id).exclude(used_at=None).update(
        used_at=F("used_at") - timedelta(seconds=11)
    )
    assert refresh(first["refresh_token"]).status_code == 400
    assert Api(token=second["access_token"]).get(VALIDATE).status_code == 401
    assert own.api.get(VALIDATE).status_code == 200
    assert PlatformEvent.objects.filter(action="refresh_token.reused", tenant_id=own.id).count() == 1


def test_refresh_tokens_are_stored_hashed_or_sealed(tenant: TestTenant) -> None:
    person = tenant.register()
    second = refresh(tenant.sign_in(person)["refresh_token"]).json()
    with in_tenant(tenant.id):
        rows = list(EndUserRefreshToken.objects.filter(session__user_id=person.id))
    for row in rows:
        kept = bytes(row.digest) + bytes(row.successor_sealed or b"")
        assert second["refresh_token"][-43:].encode() not in kept


@pytest.mark.parametrize("spoilt", ["", "x", "a.b.c"])
def test_refresh_rejects_other_strings(spoilt: str) -> None:
    response = refresh(spoilt)
    assert (response.status_code, response.json()["error"]) in {(400, "invalid_grant"), (400, "invalid_request")}


def test_refresh_token_is_bound_to_its_client(tenant: TestTenant, other_tenant: TestTenant) -> None:
    token = tenant.sign_in(tenant.register())["refresh_token"]
    client = make_client(tenant)
    assert refresh(token, client_id=str(other_tenant.client_id)).json()["error"] == "invalid_grant"
    assert refresh(token, headers=basic(client)).json()["error"] == "invalid_grant"
    assert refresh(token, client_id=str(uuid4())).json()["error"] == "invalid_client"
    assert refresh(token, client_id=client["client_id"]).json()["error"] == "invalid_client"
    assert refresh(token, client_id=str(tenant.client_id)).status_code == 200


def test_refresh_requires_secret_of_confidential_client(tenant: TestTenant) -> None:
    client = make_client(tenant, first_party=True)
    person = tenant.register()
    login = {"client_id": client["client_id"], "email": person.email, "password": person.password}
    token = Api().post("/uflow/auth/enduser/login", login, headers=basic(client)).json()["refresh_token"]
    alone = refresh(token)
    assert (alone.status_code, alone.json()["error"]) == (401, "invalid_client")
    assert refresh(token, client_id=client["client_id"], client_secret="ics_no").status_code == 401
    assert refresh(token, headers=basic(client)).status_code == 200


def test_refresh_with_scope_returns_scope(tenant: TestTenant) -> None:
    response = refresh(tenant.sign_in(tenant.register())["refresh_token"], scope="services:read")
    assert response.status_code == 200
    assert "services:read" not in response.json()["scope"].split()


def test_refresh_rejects_deleted_or_inactive_user(tenant: TestTenant) -> None:
    person = tenant.register()
    token = tenant.sign_in(person)["refresh_token"]
    tenant.api.put(f"/uflow/user/enduser/{tenant.id}/{person.id}/status", {"active": False})
    assert refresh(token).json()["error"] == "invalid_grant"


def test_refresh_rejects_suspended_tenant(new_tenant: Any, operator: Api) -> None:
    from tests.world import sign_in_admin

    own = new_tenant()
    tokens = [own.sign_in(own.register())["refresh_token"], sign_in_admin(own.admin.username)["refresh_token"]]
    operator.patch(f"/uflow/admin/tenants/{own.id}", {"status": "suspended"})
    responses = [refresh(token) for token in tokens]
    assert {response.status_code for response in responses} <= {400, 401}


def test_public_client_is_not_locked_out_by_wrong_secrets(tenant: TestTenant, settings: Any) -> None:
    settings.LIMITS = {**settings.LIMITS, "wrong_secret": (3, 86_400)}
    token, caller = tenant.sign_in(tenant.register())["refresh_token"], Api()

    def sent(**fields: str) -> int:
        return int(caller.post("/authmgr/token", **form(grant_type="refresh_token", **fields)).status_code)

    guess = {"refresh_token": "x", "client_id": make_client(tenant)["client_id"]}
    assert [sent(**guess, client_secret="wrong") for _ in range(4)] == [401, 401, 401, 429]
    assert sent(**guess) == 429
    assert sent(refresh_token=token, client_id=str(uuid4())) == 429
    assert sent(refresh_token=token, client_id=str(tenant.client_id)) == 200


def test_refresh_statement_counts(new_tenant: Any) -> None:
    tenant = new_tenant()
    token = tenant.sign_in(tenant.register())["refresh_token"]
    with capture_statements() as seen:
        assert refresh(token).status_code == 200
    # The tenant; the token with the state of its session and user; tenant and client; and the rotation.
    assert seen.counts == (0, 4), seen


def test_refresh_costs_the_same_after_many_refreshes(tenant: TestTenant) -> None:
    tokens = tenant.sign_in(tenant.register())
    with in_tenant(tenant.id), connections["tenant"].cursor() as cursor:
        session = EndUserSession.objects.latest("created_at")
        used = session.last_used_at
        EndUserRefreshToken.objects.bulk_create(
            EndUserRefreshToken(session=session, digest=number.to_bytes(32, "big"), used_at=used)
            for number in range(2000)
        )
        cursor.execute("ANALYZE userflow_enduserrefreshtoken")
        values = {"now": used, "expires_at": used, "successor": b"s" * 32, "successor_sealed": b"sealed"}
        statement = queries._ROTATE.format(
            refresh_tokens="userflow_enduserrefreshtoken", sessions="userflow_endusersession", changed_key=""
        )
        digest = hash_token(tokens["refresh_token"])
        cursor.execute(f"EXPLAIN {statement}", {**values, "digest": digest})
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Index Scan using enduserrefreshtoken_kept" in plan, plan
    assert "Seq Scan on userflow_enduserrefreshtoken" not in plan, plan
    assert refresh(tokens["refresh_token"]).status_code == 200

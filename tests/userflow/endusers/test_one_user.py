"""Read, change, deactivate and erase one end user."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from tenants.entering.context import in_tenant
from tests.world import PASSWORD, Api, TestTenant, User, capture_statements, sign_in_admin
from userflow.accounts.models import EndUser
from userflow.accounts.session_models import EndUserAttempts, EndUserSession
from userflow.user_index.entries import deliver

UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


def path(tenant: TestTenant, user: Any, rest: str = "") -> str:
    return f"/uflow/user/enduser/{tenant.id}/{getattr(user, 'id', user)}{rest}"


def test_a_user_reads_and_changes_their_own_record(tenant: TestTenant) -> None:
    person = tenant.register()
    me = tenant.as_user(person)
    changed = me.put(path(tenant, person), {"name": "New Name", "metadata": {"plan": {"seats": 3}}})
    assert changed.status_code == 200
    assert set(changed.json()) == {"user_id", "email", "name", "updated_at", "message"}
    read = me.get(path(tenant, person)).json()
    assert (read["name"], read["metadata"], read["email"]) == ("New Name", {"plan": {"seats": 3}}, person.email)
    me.put(path(tenant, person), {"metadata": {}})
    assert me.get(path(tenant, person)).json()["metadata"] == {}


@pytest.mark.parametrize("body", [{"name": 5}, {"metadata": []}, {"metadata": "x"}, {"email": "x"}])
def test_invalid_update_names_field_and_changes_nothing(tenant: TestTenant, body: dict[str, Any]) -> None:
    person = tenant.register()
    response = tenant.api.put(path(tenant, person), {"name": "kept out", **body})
    assert response.status_code == 400
    assert set(response.json()["details"]) == set(body)
    assert tenant.api.get(path(tenant, person)).json()["name"] != "kept out"


def test_update_taken_address_is_409_own_spelling_is_ok(tenant: TestTenant) -> None:
    one, two = tenant.register(), tenant.register()
    tenant.sign_in(two)
    assert tenant.api.put(path(tenant, one), {"email": two.email.upper()}).status_code == 409
    assert tenant.api.put(path(tenant, one), {"email": one.email.upper()}).status_code == 200


@pytest.mark.parametrize("member", ["active", "provider", "client_id", "id", "password", "mfa_methods", "tenant_id"])
def test_update_ignores_other_fields(tenant: TestTenant, member: str) -> None:
    person = tenant.register()
    me = tenant.as_user(person)
    before = me.get(path(tenant, person)).json()
    assert me.put(path(tenant, person), {member: "x"}).status_code == 200
    assert me.get(path(tenant, person)).json() | {"updated_at": ""} == before | {"updated_at": ""}


def test_end_user_cannot_access_other_users(tenant: TestTenant, other_tenant: TestTenant) -> None:
    me, other_user, foreign = tenant.register(), tenant.register(), other_tenant.register()
    api = tenant.as_user(me)
    responses = [api.get(path(tenant, user)) for user in (other_user, foreign, UNKNOWN_ID)]
    assert {response.status_code for response in responses} == {403}
    assert len({response.content for response in responses}) == 1
    assert api.put(path(tenant, other_user), {"name": "x"}).status_code == 403
    assert api.put(path(tenant, me, "/status"), {"active": True}).status_code == 403
    assert api.delete(path(tenant, me)).status_code == 403


def test_activation_does_not_revive_ended_sessions(tenant: TestTenant) -> None:
    person = tenant.register()
    api = tenant.as_user(person)
    response = tenant.api.put(path(tenant, person, "/status"), {"active": False})
    assert response.json() | {"updated_at": ""} == {
        "message": "The user is deactivated.",
        "user_id": str(person.id),
        "active": False,
        "updated_at": "",
    }
    assert api.get(path(tenant, person)).status_code == 401
    body = {"tenant_id": str(tenant.id), "user_id": str(person.id), "active": True}
    assert tenant.api.post("/uflow/admin/enduser/active", body).json()["active"] is True
    assert api.get(path(tenant, person)).status_code == 401
    assert tenant.as_user(person).get(path(tenant, person)).status_code == 200


@pytest.mark.parametrize("active", ["true", 1, None, [], {}])
def test_status_requires_a_boolean(tenant: TestTenant, active: Any) -> None:
    person = tenant.register()
    assert tenant.api.put(path(tenant, person, "/status"), {"active": active}).status_code == 400
    body = {"tenant_id": str(tenant.id), "user_id": str(person.id), "active": active}
    assert tenant.api.post("/uflow/admin/enduser/active", body).status_code == 400


def test_both_soft_deletes_keep_the_record(tenant: TestTenant) -> None:
    one, two = tenant.register(), tenant.register()
    by_path = tenant.api.delete(path(tenant, one))
    by_body = tenant.api.post("/uflow/user/enduser/delete", {"tenant_id": str(tenant.id), "user_id": str(two.id)})
    for person, response in ((one, by_path), (two, by_body)):
        assert response.status_code == 200
        assert (response.json()["user_id"], response.json()["active"]) == (str(person.id), False)
        assert tenant.api.get(path(tenant, person)).json()["active"] is False


def test_erase_removes_and_counts_all_records(tenant: TestTenant) -> None:
    person = tenant.register()
    tenant.sign_in(person)
    response = tenant.api.post(
        "/uflow/user/enduser/delete_all", {"tenant_id": str(tenant.id), "user_id": str(person.id)}
    )
    assert response.status_code == 200
    deleted = response.json()["deleted"]
    assert (deleted["role_bindings"], deleted["sessions"], deleted["end_users"]) == (1, 1, 1)
    with in_tenant(tenant.id):
        assert not EndUser.objects.filter(pk=person.id).exists()
        assert not EndUserSession.objects.filter(user_id=person.id).exists()
    assert tenant.api.get(path(tenant, person)).status_code == 404
    again = tenant.api.post("/uflow/user/enduser/delete_all", {"tenant_id": str(tenant.id), "user_id": str(person.id)})
    assert again.status_code == 404
    assert tenant.register(person.email).id != person.id


def test_erase_rejects_last_active_user(new_tenant: Any) -> None:
    tenant = new_tenant()
    one, two = tenant.register(), tenant.register()
    body = {"tenant_id": str(tenant.id)}
    assert tenant.api.delete(path(tenant, two)).status_code == 200
    rejected = tenant.api.post("/uflow/user/enduser/delete_all", {**body, "user_id": str(one.id)})
    assert (rejected.status_code, rejected.json()["error"]) == (400, "Bad Request")
    assert tenant.api.post("/uflow/user/enduser/delete_all", {**body, "user_id": str(two.id)}).status_code == 200
    assert tenant.api.get(path(tenant, one)).json()["active"] is True


def test_concurrent_erasures_leave_one_user(new_tenant: Any) -> None:
    tenant = new_tenant()
    for _ in range(5):
        pair = [tenant.register(), tenant.register()]

        def erase(person: User) -> int:
            try:
                body = {"tenant_id": str(tenant.id), "user_id": str(person.id)}
                return int(tenant.api.post("/uflow/user/enduser/delete_all", body).status_code)
            finally:
                connections.close_all()

        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(erase, pair)) == [200, 400]
        with in_tenant(tenant.id):
            (left,) = EndUser.objects.values_list("id", flat=True)
            assert EndUser.objects.filter(pk=left).delete()


def test_erase_locks_constant_number_of_rows(new_tenant: Any) -> None:
    def erased(tenant: TestTenant) -> tuple[int, list[str]]:
        deliver(tenant.id)
        body = {"tenant_id": str(tenant.id), "user_id": str(tenant.register().id)}
        with capture_statements() as seen:
            assert tenant.api.post("/uflow/user/enduser/delete_all", body).status_code == 200
        return len(seen.tenant), [sql for sql in seen.tenant if "FOR UPDATE" in sql]

    small, large = new_tenant(), new_tenant()
    small.register()
    with in_tenant(large.id):
        EndUser.objects.bulk_create(
            EndUser(email=f"{n}@example.com", email_key=f"{n}-{secrets.token_hex(4)}@example.com") for n in range(5000)
        )
    (few, _), (many, locking) = erased(small), erased(large)
    assert few == many
    assert all("LIMIT 1" in statement or '"id" = ' in statement for statement in locking)


def test_cross_tenant_calls_are_403_for_any_user_id(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person = other_tenant.register()
    body = {"tenant_id": str(other_tenant.id), "user_id": str(person.id)}
    responses = [
        tenant.api.get(path(other_tenant, person)),
        tenant.api.put(path(other_tenant, person), {"name": "x"}),
        tenant.api.put(path(other_tenant, person, "/status"), {"active": False}),
        tenant.api.delete(path(other_tenant, person)),
        tenant.api.post("/uflow/user/enduser/delete", body),
        tenant.api.post("/uflow/user/enduser/delete_all", body),
        tenant.api.post("/uflow/admin/enduser/active", {**body, "active": False}),
        tenant.api.get("/uflow/user/enduser/databases", {"tenant_id": str(other_tenant.id)}),
    ]
    assert [response.status_code for response in responses] == [403] * len(responses)
    assert other_tenant.api.get(path(other_tenant, person)).json()["active"] is True


def test_id_of_another_tenants_user_is_404(tenant: TestTenant, other_tenant: TestTenant) -> None:
    foreign = other_tenant.register()
    for user in (foreign.id, UNKNOWN_ID, "no-id", str(foreign.id).upper()):
        responses = [
            tenant.api.get(path(tenant, user)),
            tenant.api.put(path(tenant, user), {"name": "x"}),
            tenant.api.put(path(tenant, user, "/status"), {"active": False}),
            tenant.api.delete(path(tenant, user)),
        ]
        assert [response.status_code for response in responses] == [404] * 4
        assert len({response.content for response in responses}) == 1
    for user in (str(foreign.id), UNKNOWN_ID):
        body = {"tenant_id": str(tenant.id), "user_id": user}
        assert tenant.api.post("/uflow/user/enduser/delete", body).status_code == 404
        assert tenant.api.post("/uflow/user/enduser/delete_all", body).status_code == 404
        assert tenant.api.post("/uflow/admin/enduser/active", {**body, "active": True}).status_code == 404


def test_database_mapping_for_operator_and_own_admin(operator: Api, tenant: TestTenant) -> None:
    asked = {"tenant_id": str(tenant.id)}
    mapping = tenant.api.get("/uflow/user/enduser/databases", asked)
    assert set(mapping.json()) == {"tenant_id", "database_host", "database_name", "status"}
    assert mapping.json()["status"] == "active"
    assert operator.get("/uflow/user/enduser/databases", asked).content == mapping.content
    assert operator.get("/uflow/user/enduser/databases", {"tenant_id": UNKNOWN_ID}).status_code == 404
    assert operator.get("/uflow/user/enduser/databases").status_code == 400
    assert tenant.as_user(tenant.register()).get("/uflow/user/enduser/databases", asked).status_code == 403


def test_read_needs_one_statement_per_database(tenant: TestTenant) -> None:
    person = tenant.register()
    with capture_statements() as seen:
        assert tenant.api.get(path(tenant, person)).status_code == 200
    assert seen.counts == (1, 1)
    api = tenant.as_user(person)
    with capture_statements() as seen:
        assert api.get(path(tenant, person)).status_code == 200
    # One statement for the state of the caller, one for the record.
    assert seen.counts == (0, 2)


def test_erase_removes_attempt_counters(tenant: TestTenant) -> None:
    person = tenant.register()
    wrong = {"client_id": str(tenant.client_id), "email": person.email, "password": "wrong wrong"}
    assert Api().post("/uflow/auth/enduser/login", wrong).status_code == 401
    with in_tenant(tenant.id):
        before = EndUserAttempts.objects.count()
        tenant.api.post("/uflow/user/enduser/delete_all", {"tenant_id": str(tenant.id), "user_id": str(person.id)})
        assert EndUserAttempts.objects.count() == before - 1


def test_put_changes_no_user_who_holds_more(tenant: TestTenant) -> None:
    person, plain = tenant.register(), tenant.register()
    role = tenant.api.post(
        "/authmgr/roles", {"name": f"r-{secrets.token_hex(6)}", "permissions": ["services:credentials"]}
    ).json()
    tenant.api.post(f"/authmgr/roles/{role['id']}/bindings", {"user_ids": [str(person.id)]})
    manager = admin_with(tenant, "user-manager")
    new = {"email": f"{secrets.token_hex(6)}@example.com"}
    assert manager.put(f"/uflow/user/enduser/{tenant.id}/{person.id}", new).status_code == 403
    assert manager.put(f"/uflow/user/enduser/{tenant.id}/{person.id}", {"name": "Ann"}).status_code == 403
    assert manager.put(f"/uflow/user/enduser/{tenant.id}/{plain.id}", new).status_code == 200
    own = {"email": f"{secrets.token_hex(6)}@example.com", "current_password": PASSWORD}
    assert tenant.as_user(person).put(f"/uflow/user/enduser/{tenant.id}/{person.id}", own).status_code == 200


def admin_with(tenant: TestTenant, role: str) -> Api:
    """Return an admin of the tenant with this role only."""
    name = f"weak-{secrets.token_hex(4)}"
    body = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "first_name": "W", "last_name": "K"}
    assert tenant.api.post("/uflow/admin/users", {**body, "roles": [role]}).status_code == 201
    return Api(token=sign_in_admin(name)["access_token"])

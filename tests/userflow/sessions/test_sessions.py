"""Sessions listed and ended, one's own and those of a tenant's users."""

from typing import Any
from uuid import uuid4

import pytest

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant
from tests.userflow.sessions.clients import make_client, own_token
from tests.world import PASSWORD, Api, TestTenant, capture_statements, sign_in_admin
from userflow.accounts.models import AdminRole, AdminUser
from userflow.accounts.session_models import EndUserEnrollmentWindow, EndUserTicket
from userflow.admins.actions import create_admin_user

PATH = "/authmgr/sessions"
VALIDATE = "/authmgr/validate"


def test_session_list_marks_current_session(tenant: TestTenant) -> None:
    person = tenant.register()
    older, newer = tenant.as_user(person), tenant.as_user(person)
    listed = newer.get(PATH).json()
    assert (listed["total"], listed["total_pages"], listed["page"]) == (2, 1, 1)
    assert [session["current"] for session in listed["sessions"]] == [True, False]
    first = listed["sessions"][0]
    assert (first["user_id"], first["client_id"], first["amr"]) == (str(person.id), str(tenant.client_id), ["pwd"])
    assert first["address"]
    assert older.get(PATH, {"limit": 1, "page": 2}).json()["sessions"][0]["current"] is True


def test_delete_session_keeps_the_others(tenant: TestTenant) -> None:
    person = tenant.register()
    here, there = tenant.as_user(person), tenant.as_user(person)
    mine = next(s for s in here.get(PATH).json()["sessions"] if not s["current"])
    response = here.delete(f"{PATH}/{mine['id']}")
    assert (response.status_code, response.json()["id"]) == (200, mine["id"])
    assert (here.get(VALIDATE).status_code, there.get(VALIDATE).status_code) == (200, 401)
    assert here.get(PATH).json()["total"] == 1
    assert here.delete(f"{PATH}/{mine['id']}").status_code == 404
    with in_tenant(tenant.id):
        event = TenantEvent.objects.get(action="session.ended", target_id=mine["id"])
        assert event.details == {"user_id": str(person.id)}


def test_admin_lists_and_ends_sessions_of_user(tenant: TestTenant) -> None:
    person = tenant.register()
    api = tenant.as_user(person)
    listed = tenant.api.get(PATH, {"user_id": str(person.id)}).json()
    assert listed["total"] == 1
    assert tenant.api.delete(f"{PATH}/{listed['sessions'][0]['id']}").status_code == 200
    assert api.get(VALIDATE).status_code == 401


def test_sessions_of_other_tenant_are_unknown(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person = tenant.register()
    session = tenant.as_user(person).get(PATH).json()["sessions"][0]["id"]
    unknown = other_tenant.api.delete(f"{PATH}/{uuid4()}")
    foreign = other_tenant.api.delete(f"{PATH}/{session}")
    assert (foreign.status_code, foreign.content) == (404, unknown.content)
    assert other_tenant.api.delete(f"{PATH}/no-uuid").content == unknown.content
    assert other_tenant.api.get(PATH, {"user_id": str(person.id)}).status_code == 404
    assert other_tenant.api.get(PATH, {"user_id": str(uuid4())}).status_code == 404
    stated = other_tenant.api.get(PATH, {"user_id": str(person.id), "tenant_id": str(tenant.id)})
    assert stated.status_code == 403
    assert tenant.as_user(person).get(VALIDATE).status_code == 200


def test_admin_sessions_of_another_tenant_are_unknown(tenant: TestTenant, other_tenant: TestTenant) -> None:
    session = tenant.api.get(PATH).json()["sessions"][0]["id"]
    assert other_tenant.api.delete(f"{PATH}/{session}").status_code == 404
    assert other_tenant.api.get(PATH, {"user_id": str(tenant.admin.id)}).status_code == 404
    assert tenant.api.get(VALIDATE).status_code == 200


def test_end_session_checks_the_stated_user(tenant: TestTenant) -> None:
    person, other = tenant.register(), tenant.register()
    api = tenant.as_user(person)
    session = api.get(PATH).json()["sessions"][0]["id"]
    assert tenant.api.delete(f"{PATH}/{session}", query={"user_id": str(other.id)}).status_code == 404
    assert tenant.api.delete(f"{PATH}/{session}", query={"user_id": str(person.id)}).status_code == 200


@pytest.mark.parametrize("kind", ["end_user", "admin"])
def test_sign_out_everywhere_leaves_other_users_alone(new_tenant: Any, kind: str) -> None:
    tenant = new_tenant()
    apis = (
        [tenant.as_user(tenant.register()) for _ in range(2)] if kind == "end_user" else [tenant.api, new_tenant().api]
    )
    assert apis[0].post("/authmgr/logout", {"all": True}).status_code == 200
    assert [api.get("/authmgr/validate").status_code for api in apis] == [401, 200]


def test_end_user_reaches_only_own_sessions(tenant: TestTenant) -> None:
    victim, other = tenant.register(), tenant.register()
    api, attacker = tenant.as_user(victim), tenant.as_user(other)
    session = api.get(PATH).json()["sessions"][0]["id"]
    assert attacker.get(PATH, {"user_id": str(victim.id)}).status_code == 403
    assert attacker.delete(f"{PATH}/{session}").status_code == 404
    assert attacker.delete(f"{PATH}/{session}", query={"user_id": str(victim.id)}).status_code == 404
    assert api.get(VALIDATE).status_code == 200


def test_sessions_of_admins_need_admin_permissions(new_tenant: Any) -> None:
    own = new_tenant()
    mark = uuid4().hex[:8]
    member = {"email": f"m-{mark}@example.com", "first_name": "A", "last_name": "B", "password": "correct horse 9 bat"}
    made = own.api.post("/uflow/admin/users", {"username": f"m-{mark}", **member, "roles": ["user-manager"]})
    manager = Api(token=sign_in_admin(f"m-{mark}", "correct horse 9 bat")["access_token"])
    strong = own.api.get(PATH).json()["sessions"][0]["id"]
    assert manager.get(PATH, {"user_id": str(own.admin.id)}).status_code == 404
    assert manager.delete(f"{PATH}/{strong}").status_code == 404
    weak = own.api.get(PATH, {"user_id": made.json()["id"]}).json()["sessions"][0]["id"]
    assert own.api.delete(f"{PATH}/{weak}").status_code == 200
    assert manager.get(VALIDATE).status_code == 401


def test_session_list_of_others_needs_permission(new_tenant: Any) -> None:
    own = new_tenant()
    person = own.register()
    role = AdminRole.objects.create(name=f"clerk-{uuid4().hex[:6]}", permissions=["endusers:read"])
    AdminUser.objects.get(pk=own.admin.id).roles.set([role])
    assert own.api.get(PATH, {"user_id": str(person.id)}).status_code == 403
    assert own.api.get(PATH).status_code == 200


def test_operator_session_list_by_tenant_or_of_admins(tenant: TestTenant, operator: Api) -> None:
    person = tenant.register()
    tenant.as_user(person)
    named = operator.get(PATH, {"user_id": str(person.id), "tenant_id": str(tenant.id)})
    assert named.json()["total"] == 1
    by_header = operator.get(PATH, {"user_id": str(person.id)}, headers={"X-Tenant-ID": str(tenant.id)})
    assert by_header.json()["total"] == 1
    assert operator.get(PATH, {"user_id": str(person.id)}).status_code == 404
    assert operator.get(PATH, {"user_id": str(tenant.admin.id)}).json()["total"] >= 1
    session = named.json()["sessions"][0]["id"]
    assert operator.delete(f"{PATH}/{session}").status_code == 404
    assert operator.delete(f"{PATH}/{session}", query={"tenant_id": str(tenant.id)}).status_code == 200


def test_session_list_rejects_clients_own(tenant: TestTenant) -> None:
    client = Api(token=own_token(make_client(tenant, scopes=["sessions:read", "sessions:write"])))
    assert client.get(PATH).status_code == 403
    person = tenant.register()
    tenant.as_user(person)
    listed = client.get(PATH, {"user_id": str(person.id)}).json()
    assert listed["total"] == 1
    assert client.delete(f"{PATH}/{listed['sessions'][0]['id']}").status_code == 200


def ended(api: Api, user_id: Any, **query: Any) -> tuple[int, Any]:
    response = api.delete(PATH, query={"user_id": str(user_id), **query})
    return response.status_code, response.json().get("sessions_ended")


def test_delete_sessions_ends_all_of_a_user(tenant: TestTenant) -> None:
    person, second = tenant.register(), tenant.register()
    apis, other = [tenant.as_user(person), tenant.as_user(person)], tenant.as_user(second)
    refresh = tenant.sign_in(person)["refresh_token"]
    assert ended(tenant.api, person.id) == (200, 3)
    assert [api.get(VALIDATE).status_code for api in (*apis, other)] == [401, 401, 200]
    body = {"grant_type": "refresh_token", "refresh_token": refresh}
    assert Api().post("/authmgr/token", body).json()["error"] == "invalid_grant"
    with in_tenant(tenant.id):
        event = TenantEvent.objects.get(action="session.ended", target_id=person.id)
        assert (event.actor_id, event.details) == (str(tenant.admin.id), {"sessions": 3, "everywhere": True})


@pytest.mark.parametrize("path", [f"DELETE {PATH}", "POST /authmgr/logout"])
def test_ending_all_sessions_ends_tickets_and_windows(tenant: TestTenant, path: str) -> None:
    person = tenant.register()
    api = tenant.as_user(person)
    if path.startswith("DELETE"):
        assert ended(api, person.id) == (200, 1)
    else:
        assert api.post("/authmgr/logout", {"all": True}).json()["sessions_ended"] == 1
    with in_tenant(tenant.id):
        assert not EndUserTicket.objects.filter(user_id=person.id).exists()
        assert not EndUserEnrollmentWindow.objects.filter(user_id=person.id).exists()


def test_delete_sessions_needs_a_user_and_permission(tenant: TestTenant) -> None:
    victim, other = tenant.register(), tenant.register()
    api, attacker = tenant.as_user(victim), tenant.as_user(other)
    assert tenant.api.delete(PATH).json()["details"] == {"user_id": ["This field is required."]}
    assert ended(attacker, victim.id)[0] == 403
    reader = Api(token=own_token(make_client(tenant, scopes=["sessions:read"])))
    assert ended(reader, victim.id)[0] == 403
    assert ended(tenant.api, uuid4())[0] == 404
    assert api.get(VALIDATE).status_code == 200


def test_delete_sessions_stays_in_the_tenant(tenant: TestTenant, other_tenant: TestTenant, operator: Api) -> None:
    person = tenant.register()
    api = tenant.as_user(person)
    assert ended(other_tenant.api, person.id)[0] == 404
    assert ended(other_tenant.api, person.id, tenant_id=str(tenant.id))[0] == 403
    assert ended(other_tenant.api, tenant.admin.id)[0] == 404
    assert ended(operator, person.id)[0] == 404
    assert api.get(VALIDATE).status_code == 200
    assert ended(operator, person.id, tenant_id=str(tenant.id)) == (200, 1)
    assert api.get(VALIDATE).status_code == 401


def test_delete_sessions_of_stronger_end_user_is_rejected(new_tenant: Any) -> None:
    own = new_tenant()
    strong, plain = own.register(), own.register()
    role = own.api.post("/authmgr/roles", {"name": "clerks", "permissions": ["services:read"]}).json()["id"]
    own.api.post(f"/authmgr/roles/{role}/bindings", {"user_ids": [str(strong.id)]})
    api = own.as_user(strong)
    session = api.get(PATH).json()["sessions"][0]["id"]
    manager = Api(token=own_token(make_client(own, scopes=["sessions:write"])))
    assert ended(manager, strong.id)[0] == 403
    assert manager.delete(f"{PATH}/{session}").status_code == 403
    assert api.get(VALIDATE).status_code == 200
    own.as_user(plain)
    assert ended(manager, plain.id) == (200, 1)


def test_delete_sessions_of_stronger_admin_is_rejected(new_tenant: Any) -> None:
    own = new_tenant()
    role = AdminRole.objects.create(
        name=f"half-{uuid4().hex[:6]}", permissions=["admins:read", "admins:write", "sessions:read", "sessions:write"]
    )
    weak, _ = create_admin_user(
        tenant_id=own.id, username=f"weak-{uuid4().hex[:8]}", email=f"w-{uuid4().hex}@example.com", password=PASSWORD
    )
    weak.roles.set([role])
    api = Api(token=sign_in_admin(weak.username)["access_token"])
    session = own.api.get(PATH).json()["sessions"][0]["id"]
    assert ended(api, own.admin.id)[0] == 403
    assert api.delete(f"{PATH}/{session}").status_code == 403
    assert own.api.get(VALIDATE).status_code == 200
    assert ended(own.api, weak.pk) == (200, 1)
    assert api.get(VALIDATE).status_code == 401


def test_session_list_statement_counts(tenant: TestTenant) -> None:
    api = tenant.as_user(tenant.register())
    with capture_statements() as seen:
        api.get(PATH)
    assert seen.counts == (0, 3)

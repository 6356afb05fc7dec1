"""Create, list, change and deactivate admin users."""

import secrets
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from tests.userflow.mailbox import mails_to
from tests.userflow.signin.test_first_step_races import signed_in_during
from tests.world import PASSWORD, Api, TestTenant, capture_statements, sign_in_admin
from userflow.accounts.models import AdminUser
from userflow.accounts.realms import ADMINS

PATH = "/uflow/admin/users"


def body(**members: Any) -> dict[str, Any]:
    mark = secrets.token_hex(5)
    return {
        "username": f"ben-{mark}",
        "email": f"ben-{mark}@example.com",
        "password": PASSWORD,
        "first_name": "Ben",
        "last_name": "Brook",
        **members,
    }


def made(tenant: TestTenant, **members: Any) -> dict[str, Any]:
    response = tenant.api.post(PATH, body(**members))
    assert response.status_code == 201, response.content
    return dict(response.json())


def test_admin_creates_admin_of_own_tenant(tenant: TestTenant) -> None:
    sent = body()
    response = tenant.api.post(PATH, sent)
    assert response.status_code == 201
    assert response.json() | {"id": "", "created_at": ""} == {
        "id": "",
        "username": sent["username"],
        "email": sent["email"],
        "first_name": "Ben",
        "last_name": "Brook",
        "tenant_id": str(tenant.id),
        "active": True,
        "created_at": "",
    }
    assert response.headers["X-Enrollment-Ticket"]
    login = sign_in_admin(sent["username"])
    assert set(login) == {"access_token", "refresh_token", "token_type", "expires_in", "user", "mfa_required"}
    assert (login["token_type"], login["expires_in"]) == ("Bearer", 3600)
    assert login["user"] == {"id": response.json()["id"], "username": sent["username"], "email": sent["email"]}


def test_operator_creates_admins_and_operators(operator: Api, tenant: TestTenant) -> None:
    assert operator.post(PATH, body(tenant_id=str(tenant.id))).json()["tenant_id"] == str(tenant.id)
    sent = body()
    assert operator.post(PATH, sent).json()["tenant_id"] is None
    me = Api(token=sign_in_admin(sent["username"])["access_token"]).get(f"{PATH}/me").json()
    assert me["roles"] == ["operator"]
    assert "tenants:write" in me["permissions"]
    unknown = operator.post(PATH, body(tenant_id="00000000-0000-4000-8000-000000000000"))
    assert unknown.status_code == 404


@pytest.mark.parametrize("name", ["username", "email", "password", "first_name", "last_name"])
@pytest.mark.parametrize("value", [None, "", " ", 7, ["x"], True])
def test_create_admin_requires_each_field(tenant: TestTenant, name: str, value: Any) -> None:
    assert name in tenant.api.post(PATH, body(**{name: value})).json()["details"]
    assert tenant.api.post(PATH, {k: v for k, v in body().items() if k != name}).status_code == 400


def test_taken_username_or_address_is_409_in_any_case(tenant: TestTenant, other_tenant: TestTenant) -> None:
    first = made(tenant)
    assert other_tenant.api.post(PATH, body(username=first["username"].upper())).status_code == 409
    assert tenant.api.post(PATH, body(email=first["email"].upper())).status_code == 409
    assert other_tenant.api.post(PATH, body(email=tenant.admin.email.upper())).status_code == 409


def test_concurrent_creations_store_one_admin(tenant: TestTenant) -> None:
    sent = body()

    def create(_: int) -> int:
        try:
            return int(Api(token=tenant.api.token).post(PATH, sent).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(20) as pool:
        assert sorted(pool.map(create, range(20))) == [201] + [409] * 19


def test_username_cannot_be_another_users_address(tenant: TestTenant) -> None:
    victim = made(tenant)
    assert tenant.api.post(PATH, body(username=victim["email"])).status_code == 400
    own = body()
    assert tenant.api.post(PATH, {**own, "username": own["email"]}).status_code == 201


@pytest.mark.parametrize("username", ["root\u200b", "r\u00adoot", "\u0430dmin", "\uff41dmin", "admin\u202e"], ids=ascii)
def test_username_cannot_look_like_another(tenant: TestTenant, username: str) -> None:
    mark = secrets.token_hex(4)
    for value in (username + mark, mark + username):
        response = tenant.api.post(PATH, body(username=value))
        assert (response.status_code, list(response.json()["details"])) == (400, ["username"])
    changed = tenant.api.put(f"{PATH}/{made(tenant)['id']}", {"username": username + mark})
    assert (changed.status_code, list(changed.json()["details"])) == (400, ["username"])


@pytest.mark.parametrize("username", ["Mu\u0308ller", "\u0438\u0432\u0430\u043d", "o'neil smith"], ids=ascii)
def test_usernames_of_one_alphabet_are_accepted(tenant: TestTenant, username: str) -> None:
    value = f"{username} {secrets.randbelow(10**9)}"
    response = tenant.api.post(PATH, body(username=value))
    assert (response.status_code, response.json()["username"]) == (201, unicodedata.normalize("NFC", value))


def test_weak_passwords_are_400(tenant: TestTenant) -> None:
    for password in ("short", "x" * 129, "password1234"):
        assert "password" in tenant.api.post(PATH, body(password=password)).json()["details"]
    sent = body()
    assert tenant.api.post(PATH, {**sent, "password": sent["username"]}).status_code == 400


def test_grant_beyond_own_permissions_is_rejected(tenant: TestTenant, operator: Api) -> None:
    assert tenant.api.post(PATH, body(roles=["operator"])).status_code == 400
    assert operator.post(PATH, body(tenant_id=str(tenant.id), roles=["operator"])).status_code == 400
    assert tenant.api.post(PATH, body(roles=["no such role"])).status_code == 400
    assert tenant.api.post(PATH, body(roles=[])).status_code == 400
    auditor = made(tenant, roles=["auditor"])
    api = Api(token=sign_in_admin(auditor["username"])["access_token"])
    assert api.post(PATH, body()).status_code == 403
    assert api.get(PATH).status_code == 200


@pytest.mark.parametrize("roles", ["auditor", {}, [f"role-{n}" for n in range(51)]])
def test_roles_are_a_short_list(tenant: TestTenant, roles: Any) -> None:
    for response in (
        tenant.api.post(PATH, body(roles=roles)),
        tenant.api.put(f"{PATH}/{tenant.admin.id}", {"roles": roles}),
    ):
        assert response.status_code == 400
        assert response.json()["details"]["roles"][0] in (
            "Send a list.",
            "Send at most 50 entries.",
        )


def test_update_rejects_admin_with_more_permissions(tenant: TestTenant) -> None:
    weak = made(tenant, roles=["user-manager"])
    stored = AdminUser.objects.get(pk=weak["id"])
    from userflow.accounts.models import AdminRole

    role = AdminRole.objects.create(name=f"hr-{secrets.token_hex(3)}", permissions=["admins:read", "admins:write"])
    stored.roles.add(role)
    api = Api(token=sign_in_admin(weak["username"])["access_token"])
    strong = made(tenant)
    assert api.put(f"{PATH}/{strong['id']}", {"email": "mine@example.com"}).status_code == 403
    assert api.delete(f"{PATH}/{strong['id']}").status_code == 403
    assert api.put(f"{PATH}/{weak['id']}", {"roles": ["tenant-admin"]}).status_code == 403


def test_list_shows_own_tenant_only(tenant: TestTenant, other_tenant: TestTenant, operator: Api) -> None:
    mine = tenant.api.get(PATH, {"limit": 100}).json()
    assert {"items", "page", "limit", "total", "total_pages"} == set(mine)
    assert {item["tenant_id"] for item in mine["items"]} == {str(tenant.id)}
    assert tenant.api.get(PATH, {"tenant_id": str(other_tenant.id)}).status_code == 403
    assert operator.get(PATH, {"tenant_id": str(tenant.id), "limit": 100}).json()["items"] == mine["items"]
    assert operator.get(PATH, {"tenant_id": "00000000-0000-4000-8000-000000000000"}).status_code == 404
    assert operator.get(PATH).json()["total"] > mine["total"]


def test_id_of_another_tenant_is_404(tenant: TestTenant, other_tenant: TestTenant) -> None:
    for foreign in (str(other_tenant.admin.id), "00000000-0000-4000-8000-000000000000", "x"):
        responses = [
            tenant.api.get(f"{PATH}/{foreign}"),
            tenant.api.put(f"{PATH}/{foreign}", {"first_name": "x"}),
            tenant.api.delete(f"{PATH}/{foreign}"),
        ]
        assert [response.status_code for response in responses] == [404, 404, 404]
    assert (
        tenant.api.post(f"{PATH}/active", {"user_id": str(other_tenant.admin.id), "active": False}).status_code == 404
    )


def test_update_changes_given_fields(tenant: TestTenant) -> None:
    user = made(tenant)
    changed = tenant.api.put(f"{PATH}/{user['id']}", {"last_name": "Hill", "roles": ["auditor"]}).json()
    assert (changed["first_name"], changed["last_name"], changed["roles"]) == ("Ben", "Hill", ["auditor"])
    other = made(tenant)
    assert tenant.api.put(f"{PATH}/{user['id']}", {"email": other["email"]}).status_code == 409
    assert tenant.api.put(f"{PATH}/{user['id']}", {"username": other["username"]}).status_code == 409
    assert tenant.api.put(f"{PATH}/{user['id']}", {"active": False, "tenant_id": None}).json()["active"] is True


def test_removed_role_applies_at_next_request(tenant: TestTenant) -> None:
    user = made(tenant)
    api = Api(token=sign_in_admin(user["username"])["access_token"])
    assert api.get(PATH).status_code == 200
    tenant.api.put(f"{PATH}/{user['id']}", {"roles": ["service-manager"]})
    assert api.get(PATH).status_code == 403


def test_deactivation_ends_sessions_and_sign_in(tenant: TestTenant) -> None:
    user = made(tenant)
    api = Api(token=sign_in_admin(user["username"])["access_token"])
    response = tenant.api.delete(f"{PATH}/{user['id']}")
    assert (response.status_code, response.json()["active"]) == (200, False)
    assert api.get(f"{PATH}/me").status_code == 401
    login = {"username": user["username"], "password": PASSWORD}
    assert Api().post("/uflow/admin/auth/login", login).status_code == 401
    assert tenant.api.post(f"{PATH}/active", {"user_id": user["id"], "active": True}).json()["active"] is True
    assert Api().post("/uflow/admin/auth/login", login).status_code == 200


def test_new_address_voids_reset_link(tenant: TestTenant) -> None:
    user, new = made(tenant), f"moved-{secrets.token_hex(4)}@example.com"
    assert Api().post("/uflow/auth/admin/password/forgot", {"email": user["email"]}).status_code == 200
    token = mails_to(user["email"], "new password")[-1].body.partition("token=")[2].split()[0]
    assert tenant.api.put(f"{PATH}/{user['id']}", {"email": new}).status_code == 200
    body = {"token": token, "password": "another horse 8 battery"}
    assert Api().post("/uflow/auth/admin/password/reset", body).status_code == 400


def test_deactivate_rejects_oneself_and_the_last_admin(new_tenant: Any) -> None:
    tenant = new_tenant()
    assert tenant.api.delete(f"{PATH}/{tenant.admin.id}").status_code == 403
    second = made(tenant)
    api = Api(token=sign_in_admin(second["username"])["access_token"])
    assert api.delete(f"{PATH}/{tenant.admin.id}").status_code == 200
    assert api.delete(f"{PATH}/{second['id']}").status_code == 403


def test_concurrent_mutual_deactivation_leaves_one_admin(new_tenant: Any) -> None:
    tenant = new_tenant()
    second = made(tenant)
    apis = [
        (tenant.api, second["id"]),
        (Api(token=sign_in_admin(second["username"])["access_token"]), tenant.admin.id),
    ]

    def off(pair: Any) -> int:
        try:
            return int(pair[0].delete(f"{PATH}/{pair[1]}").status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        statuses = sorted(pool.map(off, apis))
    # The slower admin is rejected as the last admin, or is signed out already.
    assert statuses[0] == 200
    assert statuses[1] in (401, 403)
    assert AdminUser.objects.filter(tenant_id=tenant.id, active=True).count() == 1


def test_concurrent_edits_and_deactivations_do_not_deadlock(tenant: TestTenant) -> None:
    path = f"{PATH}/{made(tenant)['id']}"
    start = Barrier(4)

    def change(number: int) -> int:
        api = Api(token=tenant.api.token)
        start.wait()
        try:
            response = api.put(path, {"roles": ["auditor"]}) if number % 2 else api.delete(path)
            return int(response.status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(change, range(4))) == [200] * 4


def test_list_finds_admins_by_username_and_address(tenant: TestTenant, other_tenant: TestTenant, operator: Api) -> None:
    own, foreign = made(tenant), made(other_tenant)

    def found(api: Api, **query: str) -> list[str]:
        page = api.get(PATH, query).json()
        assert page["total"] == len(page["items"])
        return [user["id"] for user in page["items"]]

    name, email = own["username"], own["email"]
    assert found(tenant.api, username=name.upper()) == found(tenant.api, email=email[:-3].upper()) == [own["id"]]
    assert found(tenant.api, username=name, email=email) == [own["id"]]
    assert (
        found(tenant.api, username=name[:-1]) == found(tenant.api, username="%") == found(tenant.api, email="%") == []
    )
    assert found(tenant.api, username=foreign["username"]) == found(tenant.api, email=foreign["email"]) == []
    assert found(operator, username=foreign["username"]) == [foreign["id"]]
    assert found(operator, tenant_id=str(tenant.id), username=foreign["username"]) == []


def test_reads_have_constant_statement_count(tenant: TestTenant) -> None:
    with capture_statements() as seen:
        tenant.api.get(f"{PATH}/me")
    assert seen.counts == (3, 0)
    with capture_statements() as seen:
        tenant.api.get(PATH, {"limit": 100})
    assert seen.counts == (4, 0)


def test_last_admin_keeps_the_managing_role(new_tenant: Any) -> None:
    tenant = new_tenant()
    path = f"{PATH}/{tenant.admin.id}"
    for roles in ([], ["auditor"], ["user-manager", "auditor"]):
        assert tenant.api.put(path, {"roles": roles}).status_code == 403
    assert tenant.api.put(path, {"roles": ["tenant-admin", "auditor"]}).status_code == 200
    made(tenant)
    assert tenant.api.put(path, {"roles": ["auditor"]}).json()["roles"] == ["auditor"]


def test_usernames_are_compared_without_unicode_upper_case(tenant: TestTenant, other_tenant: TestTenant) -> None:
    mine = made(tenant, username=f"admin-{secrets.token_hex(4)}s")
    # Dotless i and long s are I and S in upper case; which user is found must not depend on row order.
    for twin in (mine["username"].replace("i", "\u0131"), mine["username"].replace("s", "\u017f")):
        # From before usernames that look like others were rejected.
        other = made(other_tenant, password="another long password 7")
        AdminUser.objects.filter(pk=other["id"]).update(username=twin)
    assert sign_in_admin(mine["username"])["user"]["id"] == mine["id"]
    assert sign_in_admin(mine["username"].upper())["user"]["id"] == mine["id"]
    assert tenant.api.post(PATH, body(username=mine["username"].upper())).status_code == 409


def test_createsuperuser_reports_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"root-{secrets.token_hex(4)}"
    for member, value in {"USERNAME": name, "EMAIL": f"{name}@example.com", "PASSWORD": PASSWORD}.items():
        monkeypatch.setenv(f"DJANGO_SUPERUSER_{member}", value)
    call_command("createsuperuser", interactive=False, verbosity=0)
    assert sign_in_admin(name)["user"]["username"] == name
    with pytest.raises(CommandError, match="Another admin user has this"):
        call_command("createsuperuser", interactive=False, verbosity=0)
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "password")
    with pytest.raises(CommandError, match="known from breaches"):
        call_command("createsuperuser", interactive=False, verbosity=0)
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    monkeypatch.setenv("DJANGO_SUPERUSER_EMAIL", "no-address")
    with pytest.raises(CommandError, match="not an e-mail address"):
        call_command("createsuperuser", interactive=False, verbosity=0)
    monkeypatch.setenv("DJANGO_SUPERUSER_EMAIL", f"{secrets.token_hex(4)}@example.com")
    for odd in (" ", "two\nlines", f"{name}@example.com"):
        monkeypatch.setenv("DJANGO_SUPERUSER_USERNAME", odd)
        with pytest.raises(CommandError, match="username"):
            call_command("createsuperuser", interactive=False, verbosity=0)


@pytest.mark.parametrize("meanwhile", [{"active": False}, {"password": "argon2$another"}, {"mfa_methods": ["totp"]}])
def test_concurrent_edits_keep_both_changes(tenant: TestTenant, meanwhile: dict[str, Any]) -> None:
    ben = AdminUser.objects.filter(pk=made(tenant)["id"])
    response = signed_in_during(
        ADMINS,
        lambda: ben.update(**meanwhile),
        lambda: tenant.api.put(f"{PATH}/{ben.get().pk}", {"first_name": "Benjamin"}),
    )
    assert (response.status_code, ben.get().first_name) == (200, "Benjamin")
    assert {name: getattr(ben.get(), name) for name in meanwhile} == meanwhile

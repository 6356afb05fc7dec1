"""The profile of admin users and end users."""

from typing import Any
from uuid import uuid4

import pytest
from django.core import mail as django_mail

from tests.userflow.sessions.aged import aged
from tests.userflow.sessions.clients import make_client, own_token
from tests.userflow.validation.test_validation import with_role
from tests.world import PASSWORD, Api, TestTenant, capture_statements, sign_in_admin
from userflow.mail_delivery import background

PATH = "/authmgr/profile"


def test_an_end_users_profile(tenant: TestTenant) -> None:
    person, _ = with_role(tenant, "invoices:read")
    name = f"group-{uuid4().hex[:8]}"
    group = tenant.api.post("/authmgr/groups", {"name": name, "roles": []}).json()["id"]
    tenant.api.post(f"/authmgr/groups/{group}/users", {"user_ids": [str(person.id)]})
    profile = tenant.as_user(person).get(PATH).json()
    assert (profile["id"], profile["kind"], profile["email"]) == (str(person.id), "end_user", person.email)
    assert (profile["name"], profile["active"], profile["provider"]) == ("Some One", True, "local")
    assert (profile["tenant_id"], profile["client_id"]) == (str(tenant.id), str(tenant.client_id))
    assert (profile["groups"], profile["mfa_methods"], profile["metadata"]) == ([name], [], {})
    assert "user" in profile["roles"]
    assert "invoices:read" in profile["permissions"]
    assert profile["created_at"].endswith("Z")
    assert profile["last_login"].endswith("Z")
    assert not {"password", "email_key", "username"} & set(profile)


def test_an_admins_and_an_operators_profile(tenant: TestTenant, operator: Api) -> None:
    profile = tenant.api.get(PATH).json()
    assert (profile["id"], profile["kind"], profile["username"]) == (
        str(tenant.admin.id),
        "admin",
        tenant.admin.username,
    )
    assert (profile["roles"], profile["groups"], profile["tenant_id"]) == (["tenant-admin"], [], str(tenant.id))
    assert "endusers:write" in profile["permissions"]
    other = operator.get(PATH).json()
    assert (other["kind"], other["tenant_id"], other["roles"]) == ("operator", None, ["operator"])


def test_profile_rejects_clients_and_anonymous(tenant: TestTenant) -> None:
    client = Api(token=own_token(make_client(tenant)))
    assert (client.get(PATH).status_code, client.put(PATH, {}).status_code) == (403, 403)
    assert (Api().get(PATH).status_code, Api().put(PATH, {}).status_code) == (401, 401)


def test_a_user_changes_name_and_metadata(tenant: TestTenant) -> None:
    api = tenant.as_user(tenant.register())
    before = api.get(PATH).json()
    changed = api.put(PATH, {"name": "Ann", "metadata": {"theme": {"dark": True}}})
    assert changed.status_code == 200
    assert changed.json() == {
        **before,
        "name": "Ann",
        "metadata": {"theme": {"dark": True}},
        "updated_at": changed.json()["updated_at"],
    }
    assert api.put(PATH, {"metadata": {}}).json()["metadata"] == {}
    assert api.get(PATH).json()["name"] == "Ann"


def test_a_user_chooses_a_language(tenant: TestTenant) -> None:
    person = tenant.register()
    api, record = tenant.as_user(person), f"/uflow/user/enduser/{tenant.id}/{person.id}"
    assert api.get(PATH).json()["language"] is None
    assert api.put(PATH, {"language": "fr"}).json()["language"] == "fr"
    assert tenant.api.get(record).json()["language"] == "fr"
    for wrong in ("pt", "FR", "", 7):
        assert list(api.put(PATH, {"language": wrong}).json()["details"]) == ["language"]
    assert api.put(PATH, {"name": "Ann"}).json()["language"] == "fr"
    assert tenant.api.put(record, {"language": None}).status_code == 200
    assert api.get(PATH).json()["language"] is None


@pytest.mark.parametrize(
    "member", ["id", "active", "roles", "permissions", "groups", "provider", "tenant_id", "mfa_methods", "password"]
)
def test_update_ignores_other_fields(tenant: TestTenant, member: str) -> None:
    api = tenant.as_user(tenant.register())
    before = api.get(PATH).json()
    response = api.put(PATH, {member: ["tenant-admin"], "name": "Same"})
    assert response.status_code == 200
    assert {**response.json(), "updated_at": 0} == {**before, "name": "Same", "updated_at": 0}


@pytest.mark.parametrize(("member", "value"), [("name", 7), ("email", "x"), ("metadata", []), ("metadata", "x")])
def test_invalid_field_is_named(tenant: TestTenant, member: str, value: Any) -> None:
    response = tenant.as_user(tenant.register()).put(PATH, {member: value})
    assert (response.status_code, list(response.json()["details"])) == (400, [member])


def test_register_rejects_taken_address(tenant: TestTenant) -> None:
    taken, api = tenant.register(), tenant.as_user(tenant.register())
    assert api.put(PATH, {"email": taken.email.upper(), "current_password": PASSWORD}).status_code == 409


def test_admin_update_notifies_old_address(new_tenant: Any) -> None:
    own = new_tenant()
    address = f"new-{uuid4().hex[:8]}@example.com"
    body = {"first_name": "Ann", "last_name": "Lee", "email": address, "roles": ["operator"]}
    changed = own.api.put(PATH, {**body, "current_password": PASSWORD})
    assert changed.status_code == 200, changed.content
    profile = own.api.get(PATH).json()
    assert (profile["first_name"], profile["last_name"], profile["email"]) == ("Ann", "Lee", address)
    assert profile["roles"] == ["tenant-admin"]
    assert background.settle(60)
    sent = [sent.to[0] for sent in django_mail.outbox]
    assert sorted(to for to in sent if to in (own.admin.email, address)) == sorted([own.admin.email, address])


def test_update_rejects_taken_username_and_address(new_tenant: Any, other_tenant: TestTenant) -> None:
    tenant = new_tenant()
    assert tenant.api.put(PATH, {"username": other_tenant.admin.username.upper()}).status_code == 409
    fresh = Api(token=sign_in_admin(tenant.admin.username)["access_token"])
    body = {"email": other_tenant.admin.email, "current_password": PASSWORD}
    assert fresh.put(PATH, body).status_code == 409


def test_new_address_requires_recent_sign_in(new_tenant: Any) -> None:
    tenant = new_tenant()
    person = tenant.register()
    admin = sign_in_admin(tenant.admin.username)["access_token"]
    mine = f"/uflow/admin/users/{tenant.admin.id}"
    for path, token, own in (
        (PATH, tenant.sign_in(person)["access_token"], person.email),
        (PATH, admin, tenant.admin.email),
        (mine, admin, tenant.admin.email),
    ):
        api = Api(token=aged(token, 16))
        body = {"email": f"new-{uuid4().hex[:8]}@example.com", "current_password": PASSWORD}
        rejected = api.put(path, body)
        assert (rejected.status_code, rejected.json()["code"]) == (401, "insufficient_user_authentication")
        # A form that sends all fields back does not change the address.
        assert api.put(path, {"email": own}).status_code == 200


def test_profile_needs_one_statement(tenant: TestTenant) -> None:
    api = tenant.as_user(tenant.register())
    with capture_statements() as seen:
        api.get(PATH)
    with capture_statements() as admin:
        tenant.api.get(PATH)
    assert (seen.counts, admin.counts) == ((0, 1), (2, 0))

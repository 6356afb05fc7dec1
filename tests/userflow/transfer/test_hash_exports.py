"""Who takes password hashes out, and who is told of it."""

import secrets
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from identity_platform.audit.models import PlatformEvent
from tests.userflow.endusers.test_rank import admin_with
from tests.userflow.mailbox import mails_to
from tests.userflow.sessions.aged import aged
from tests.userflow.sessions.clients import make_client, own_token
from tests.world import Api, House
from userflow.accounts.models import AdminRole

EXPORT = "/uflow/admin/enduser/export"
SUBJECT = "Password hashes of"


def export(house: House, door: Api, **more: Any) -> Any:
    return door.post(EXPORT, {"tenant_id": str(house.id), "with_hashes": True, **more})


def test_hash_export_is_mailed_to_the_tenants_active_admins(new_house: Any) -> None:
    house = new_house()
    user, colleague = house.register(), admin_with(house, "audit:read")
    gone = admin_with(house, "audit:read").get("/authmgr/profile").json()
    assert house.api.post("/uflow/admin/users/active", {"user_id": gone["id"], "active": False}).status_code == 200
    assert export(house, house.api).json()["users"][0]["email"] == user.email
    for address in (house.admin.email, colleague.get("/authmgr/profile").json()["email"]):
        (mail,) = mails_to(address, SUBJECT)
        assert f"By: the admin user {house.admin.username}\n" in mail.body
        assert "Users: 1\n" in mail.body
        assert f"From the address: {house.api.address}\n" in mail.body
    assert mails_to(gone["email"], SUBJECT) == []
    event = PlatformEvent.objects.get(tenant_id=house.id, action="end_users.exported")
    assert (event.details, event.actor_id) == ({"hashes": True, "rows": 1}, str(house.admin.id))


def test_hash_export_by_an_operator_is_mailed_too(new_house: Any, operator: Api, operator_name: str) -> None:
    house = new_house()
    house.register()
    assert export(house, operator).status_code == 200
    (mail,) = mails_to(house.admin.email, SUBJECT)
    assert f"By: the operator {operator_name}\n" in mail.body


def test_hash_export_by_command_is_mailed(new_house: Any) -> None:
    house = new_house()
    house.register(), house.register()
    call_command("export_users", house.made.tenant.slug, stdout=StringIO(), stderr=StringIO())
    (mail,) = mails_to(house.admin.email, SUBJECT)
    assert "By: the command export_users, run on the server\n" in mail.body
    assert "Users: 2\n" in mail.body


def test_export_without_hashes_is_mailed_to_nobody(new_house: Any) -> None:
    house = new_house()
    house.register()
    assert house.api.post(EXPORT, {"tenant_id": str(house.id)}).status_code == 200
    call_command("export_users", house.made.tenant.slug, "--without-hashes", stdout=StringIO(), stderr=StringIO())
    assert mails_to(house.admin.email, SUBJECT) == []


def test_hashes_need_their_own_permission(house: House) -> None:
    rights = ("endusers:read", "endusers:write", "endusers:delete")
    for door in (admin_with(house, *rights), Api(token=own_token(make_client(house, scopes=list(rights))))):
        assert door.post(EXPORT, {"tenant_id": str(house.id)}).status_code == 200
        assert export(house, door).status_code == 403
    assert export(house, admin_with(house, "endusers:read", "endusers:export_hashes")).status_code == 200


def test_only_the_two_full_roles_export_hashes() -> None:
    built_in = AdminRole.objects.filter(
        name__in=["operator", "tenant-admin", "service-manager", "user-manager", "auditor"]
    )
    holding = {role.name for role in built_in if "endusers:export_hashes" in role.permissions}
    assert holding == {"operator", "tenant-admin"}


def test_old_sign_in_exports_no_hashes(house: House) -> None:
    old = Api(token=aged(str(house.api.token), 16))
    before = PlatformEvent.objects.filter(action="end_users.exported").count()
    answer = export(house, old)
    assert (answer.status_code, answer.json()["code"]) == (401, "insufficient_user_authentication")
    assert PlatformEvent.objects.filter(action="end_users.exported").count() == before
    assert old.post(EXPORT, {"tenant_id": str(house.id)}).status_code == 200


@pytest.mark.parametrize("field", ["tenant_id", "cursor"])
def test_another_tenants_hashes_stay_there(house: House, other_house: House, field: str) -> None:
    theirs = other_house.register(f"{secrets.token_hex(8)}@example.com")
    asked = {field: str(other_house.id if field == "tenant_id" else theirs.id), "limit": 500}
    answer = export(house, house.api, **asked)
    assert answer.status_code == (403 if field == "tenant_id" else 200)
    assert theirs.email not in answer.content.decode()

"""Exports of password hashes: permissions and notifications."""

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
from tests.world import Api, TestTenant
from userflow.accounts.models import AdminRole

EXPORT = "/uflow/admin/enduser/export"
SUBJECT = "Password hashes of"


def export(tenant: TestTenant, api: Api, **more: Any) -> Any:
    return api.post(EXPORT, {"tenant_id": str(tenant.id), "with_hashes": True, **more})


def test_hash_export_is_mailed_to_the_tenants_active_admins(new_tenant: Any) -> None:
    tenant = new_tenant()
    user, colleague = tenant.register(), admin_with(tenant, "audit:read")
    gone = admin_with(tenant, "audit:read").get("/authmgr/profile").json()
    assert tenant.api.post("/uflow/admin/users/active", {"user_id": gone["id"], "active": False}).status_code == 200
    assert export(tenant, tenant.api).json()["users"][0]["email"] == user.email
    for address in (tenant.admin.email, colleague.get("/authmgr/profile").json()["email"]):
        (mail,) = mails_to(address, SUBJECT)
        assert f"By: the admin user {tenant.admin.username}\n" in mail.body
        assert "Users: 1\n" in mail.body
        assert f"Network address: {tenant.api.address}\n" in mail.body
    assert mails_to(gone["email"], SUBJECT) == []
    event = PlatformEvent.objects.get(tenant_id=tenant.id, action="end_users.exported")
    assert (event.details, event.actor_id) == ({"hashes": True, "rows": 1}, str(tenant.admin.id))


def test_hash_export_by_an_operator_is_mailed_too(new_tenant: Any, operator: Api, operator_name: str) -> None:
    tenant = new_tenant()
    tenant.register()
    assert export(tenant, operator).status_code == 200
    (mail,) = mails_to(tenant.admin.email, SUBJECT)
    assert f"By: the operator {operator_name}\n" in mail.body


def test_hash_export_by_command_is_mailed(new_tenant: Any) -> None:
    tenant = new_tenant()
    tenant.register(), tenant.register()
    call_command("export_users", tenant.slug, stdout=StringIO(), stderr=StringIO())
    (mail,) = mails_to(tenant.admin.email, SUBJECT)
    assert "By: the command export_users, run on the server\n" in mail.body
    assert "Users: 2\n" in mail.body


def test_export_without_hashes_sends_no_mail(new_tenant: Any) -> None:
    tenant = new_tenant()
    tenant.register()
    assert tenant.api.post(EXPORT, {"tenant_id": str(tenant.id)}).status_code == 200
    call_command("export_users", tenant.slug, "--without-hashes", stdout=StringIO(), stderr=StringIO())
    assert mails_to(tenant.admin.email, SUBJECT) == []


def test_hashes_need_their_own_permission(tenant: TestTenant) -> None:
    rights = ("endusers:read", "endusers:write", "endusers:delete")
    for api in (admin_with(tenant, *rights), Api(token=own_token(make_client(tenant, scopes=list(rights))))):
        assert api.post(EXPORT, {"tenant_id": str(tenant.id)}).status_code == 200
        assert export(tenant, api).status_code == 403
    assert export(tenant, admin_with(tenant, "endusers:read", "endusers:export_hashes")).status_code == 200


def test_only_the_two_full_roles_export_hashes() -> None:
    built_in = AdminRole.objects.filter(
        name__in=["operator", "tenant-admin", "service-manager", "user-manager", "auditor"]
    )
    holding = {role.name for role in built_in if "endusers:export_hashes" in role.permissions}
    assert holding == {"operator", "tenant-admin"}


def test_old_sign_in_exports_no_hashes(tenant: TestTenant) -> None:
    old = Api(token=aged(str(tenant.api.token), 16))
    before = PlatformEvent.objects.filter(action="end_users.exported").count()
    response = export(tenant, old)
    assert (response.status_code, response.json()["code"]) == (401, "insufficient_user_authentication")
    assert PlatformEvent.objects.filter(action="end_users.exported").count() == before
    assert old.post(EXPORT, {"tenant_id": str(tenant.id)}).status_code == 200


@pytest.mark.parametrize("field", ["tenant_id", "cursor"])
def test_hash_export_of_other_tenant_is_rejected(tenant: TestTenant, other_tenant: TestTenant, field: str) -> None:
    theirs = other_tenant.register(f"{secrets.token_hex(8)}@example.com")
    asked = {field: str(other_tenant.id if field == "tenant_id" else theirs.id), "limit": 500}
    response = export(tenant, tenant.api, **asked)
    assert response.status_code == (403 if field == "tenant_id" else 200)
    assert theirs.email not in response.content.decode()

"""Enrollment passes: an admin lets a user without a factor enroll one, and never does it in the user's place."""

import re
import secrets
import uuid
from typing import Any

import pyotp
import pytest

from identity_platform.audit.models import PlatformEvent, TenantEvent
from mfa.webauthn.models import EndUserPasskey
from tenants.entering.context import in_tenant
from tests.mfa.enrollment.calls import enrol_passkey
from tests.mfa.people import TestUser, old_user
from tests.mfa.signin.test_admins import Admin, new_admin
from tests.userflow.mailbox import mails_to
from tests.userflow.sessions.aged import aged
from tests.world import PASSWORD, Api, TestTenant, sign_in_admin
from userflow.accounts.models import AdminRole, AdminUser

PATH = "/webauthn/enrollment-passes"
ADMIN_PATH = "/webauthn/admin/enrollment-passes"
BEGIN = "/webauthn/totp/beginSetup"


@pytest.fixture
def ann(tenant: TestTenant) -> TestUser:
    """Registered long ago, without a factor, a ticket or a window."""
    return old_user(tenant)


def asked(person: TestUser, **fields: Any) -> dict[str, Any]:
    whom = {"tenant_id": str(person.tenant.id), "user_id": str(person.id)}
    return {**whom, "reason": "lost the phone", "delivery": "show", **fields}


def shown_to(api: Api, person: TestUser) -> str:
    response = api.post(PATH, asked(person))
    assert response.status_code == 201, response.content
    return str(response.json()["enrollment_pass"])


def by(ticket: str) -> dict[str, str]:
    return {"X-Enrollment-Ticket": ticket}


def mailed_pass(address: str) -> str:
    (found,) = re.findall(
        r"^[A-Za-z0-9_-]{43}$", mails_to(address, "set up a new second factor")[-1].body, re.MULTILINE
    )
    return str(found)


def test_shown_pass_enrolls_one_factor(tenant: TestTenant, ann: TestUser) -> None:
    response = tenant.api.post(PATH, asked(ann))
    assert set(response.json()) == {"message", "user_id", "expires_at", "enrollment_pass"}
    assert (response.status_code, response.headers["Cache-Control"]) == (201, "no-store")
    proof = by(response.json()["enrollment_pass"])
    ann.enrol_totp(headers=proof)
    again = Api().post("/webauthn/enduser/beginRegistration", ann.name, headers=proof)
    assert (ann.row().mfa_methods, again.status_code) == (["totp", "backup_code"], 401)


def test_pass_is_taken_in_the_body(tenant: TestTenant, ann: TestUser) -> None:
    body = {**ann.name, "enrollment_ticket": shown_to(tenant.api, ann)}
    assert Api().post(BEGIN, body).status_code == 200


def test_mailed_pass_is_not_shown(tenant: TestTenant, ann: TestUser) -> None:
    response = tenant.api.post(PATH, asked(ann, delivery="mail"))
    assert (response.status_code, "enrollment_pass" in response.json()) == (201, False)
    ann.enrol_totp(headers=by(mailed_pass(ann.email)))


def test_user_is_told_of_a_shown_pass(tenant: TestTenant, ann: TestUser) -> None:
    token = shown_to(tenant.api, ann)
    (told,) = mails_to(ann.email, "set up a new second factor")
    assert "an administrator has issued an enrollment pass" in told.body
    assert token not in told.body


def test_pass_is_audited_with_its_reason(tenant: TestTenant, ann: TestUser) -> None:
    token = shown_to(tenant.api, ann)
    with in_tenant(tenant.id):
        event = TenantEvent.objects.get(action="enrollment_pass.issued", target_id=str(ann.id))
    assert event.details == {"reason": "lost the phone", "delivery": "show"}
    assert (event.actor_id, token in str(event.details)) == (str(tenant.admin.id), False)


def test_pass_lasts_an_hour_and_a_new_one_replaces_it(tenant: TestTenant, ann: TestUser) -> None:
    first, second = shown_to(tenant.api, ann), shown_to(tenant.api, ann)
    ann.minutes_pass(59)
    tried = [Api().post(BEGIN, ann.name, headers=by(token)).status_code for token in (first, second)]
    ann.minutes_pass(2)
    assert [*tried, Api().post(BEGIN, ann.name, headers=by(second)).status_code] == [401, 200, 401]


def test_pass_is_for_one_user_of_one_tenant(tenant: TestTenant, other_tenant: TestTenant, ann: TestUser) -> None:
    ben, far = old_user(tenant), old_user(other_tenant)
    token = shown_to(tenant.api, ann)
    for person in (ben, far):
        assert Api().post(BEGIN, person.name, headers=by(token)).status_code == 401


def test_pass_works_where_only_sessions_may_enroll(new_tenant: Any, operator: Api) -> None:
    own = new_tenant()
    changed = {"settings": {"enrollment_mode": "bearer"}}
    assert operator.patch(f"/uflow/admin/tenants/{own.id}", changed).status_code == 200
    person = old_user(own)
    assert Api().post(BEGIN, person.name, headers=by(shown_to(own.api, person))).status_code == 200


def test_pass_for_a_user_with_factors_names_the_reset(tenant: TestTenant, ann: TestUser) -> None:
    ann.enrol_totp(token=ann.token())
    response = tenant.api.post(PATH, asked(ann))
    assert (response.status_code, "factors/reset" in response.json()["message"]) == (409, True)


def test_passkey_by_pass_needs_the_password_once(tenant: TestTenant, ann: TestUser) -> None:
    # The admin has read the pass too.
    proof = by(shown_to(tenant.api, ann))
    begun = Api().post("/webauthn/enduser/beginRegistration", ann.name, headers=proof)
    assert begun.status_code == 200
    assert (
        Api().post("/webauthn/finishRegistration", {**ann.name, "credential": {"id": "x"}}, headers=proof).status_code
        == 401
    )
    enrol_passkey(ann, headers=proof)
    with in_tenant(tenant.id):
        assert EndUserPasskey.objects.get(user_id=ann.id).second_step_only


def test_reset_mails_a_pass_and_opens_no_window(tenant: TestTenant, ann: TestUser) -> None:
    ann.enrol_totp(token=ann.token())
    body = {"tenant_id": str(tenant.id), "user_id": str(ann.id), "reason": "lost"}
    assert tenant.api.post("/webauthn/factors/reset", body).status_code == 200
    assert [api.post(BEGIN, ann.name).status_code for api in (ann.api, Api(address=tenant.api.address))] == [401, 401]
    ann.enrol_totp(headers=by(mailed_pass(ann.email)))


@pytest.mark.parametrize("path", [PATH, "/webauthn/factors/reset"])
def test_passes_and_resets_need_permission_reason_and_tenant(
    tenant: TestTenant, other_tenant: TestTenant, path: str
) -> None:
    ann = old_user(tenant)
    body = asked(ann)
    assert tenant.api.post(path, {**body, "reason": " "}).status_code == 400
    assert tenant.api.post(path, {**body, "user_id": str(uuid.uuid4())}).status_code == 404
    assert other_tenant.api.post(path, body).status_code == 403
    assert other_tenant.api.post(path, {**body, "tenant_id": str(other_tenant.id)}).status_code == 404
    assert Api(token=ann.token()).post(path, body).status_code == 403
    assert Api().post(path, body).status_code == 401
    # Only the mail of the registration.
    assert len(mails_to(ann.email)) == 1


@pytest.mark.parametrize("path", [PATH, "/webauthn/factors/reset", ADMIN_PATH, "/webauthn/admin/factors/reset"])
def test_passes_and_resets_need_a_recent_proof(tenant: TestTenant, path: str) -> None:
    ann, eve = old_user(tenant), new_admin(tenant)
    body = {**asked(ann), "user_id": eve.id} if "admin" in path else asked(ann)
    response = Api(token=aged(str(tenant.api.token), 16)).post(path, body)
    assert (response.status_code, response.json()["code"]) == (401, "insufficient_user_authentication")


def test_password_session_of_admin_with_factor_issues_no_pass(tenant: TestTenant, ann: TestUser) -> None:
    eve = new_admin(tenant)
    token = eve.sign_in().json()["access_token"]
    eve.enrol(token=token)
    assert Api(token=token).post(PATH, asked(ann)).json()["code"] == "insufficient_user_authentication"


# --- admin users -----------------------------------------------------------------------------------------------------


def admin_asked(admin: Admin, **fields: Any) -> dict[str, Any]:
    return {"user_id": admin.id, "reason": "new here", "delivery": "show", **fields}


def test_pass_of_an_admin_user(tenant: TestTenant) -> None:
    eve = new_admin(tenant)
    response = tenant.api.post(ADMIN_PATH, admin_asked(eve))
    assert response.status_code == 201, response.content
    assert eve.enrol(headers=by(response.json()["enrollment_pass"])).status_code == 200
    event = PlatformEvent.objects.get(action="enrollment_pass.issued", target_id=eve.id)
    assert event.details == {"reason": "new here", "delivery": "show"}


def test_passes_of_admin_users_need_rank_and_tenant(
    tenant: TestTenant, other_tenant: TestTenant, operator: Api
) -> None:
    eve = new_admin(tenant)
    role = AdminRole.objects.create(name=f"clerk-{secrets.token_hex(4)}", permissions=["admins:read", "admins:write"])
    weak = new_admin(tenant, role.name).sign_in().json()["access_token"]
    assert Api(token=weak).post(ADMIN_PATH, admin_asked(eve)).status_code == 403
    assert other_tenant.api.post(ADMIN_PATH, admin_asked(eve)).status_code == 404
    assert operator.post(ADMIN_PATH, admin_asked(eve)).status_code == 201


@pytest.mark.parametrize("path", [ADMIN_PATH, "/webauthn/admin/factors/reset"])
def test_own_factors_are_neither_reset_nor_given_a_pass(new_tenant: Any, path: str) -> None:
    own = new_tenant()
    body = {"user_id": str(own.admin.id), "reason": "lost", "delivery": "show"}
    response = own.api.post(path, body)
    assert (response.status_code, "one by one" in response.json()["message"]) == (403, True)
    assert sign_in_admin(own.admin.username)["mfa_required"] is False


def test_reset_admin_enrolls_with_mailed_pass_only(tenant: TestTenant) -> None:
    eve = new_admin(tenant)
    eve.enrol(headers=by(eve.ticket))
    body = {"user_id": eve.id, "reason": "lost the phone"}
    assert tenant.api.post("/webauthn/admin/factors/reset", body).status_code == 200
    begun = Api().post("/webauthn/admin/totp/beginSetup", {"email": eve.email}, headers=by(mailed_pass(eve.email)))
    assert (begun.status_code, len(pyotp.TOTP(begun.json()["secret"]).now())) == (200, 6)


@pytest.mark.parametrize(("permissions", "status"), [(("endusers:write",), 403), (("endusers:factors",), 201)])
def test_pass_and_reset_need_the_factors_permission(
    tenant: TestTenant, ann: TestUser, permissions: tuple[str, ...], status: int
) -> None:
    name = f"helper-{secrets.token_hex(5)}"
    made = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "first_name": "H", "last_name": "D"}
    created = tenant.api.post("/uflow/admin/users", made).json()
    AdminUser.objects.get(pk=created["id"]).roles.set(
        [AdminRole.objects.create(name=name, permissions=list(permissions))]
    )
    helper = Api(token=sign_in_admin(name)["access_token"])
    assert helper.post(PATH, asked(ann)).status_code == status
    body = {"tenant_id": str(tenant.id), "user_id": str(ann.id), "reason": "lost the phone"}
    assert helper.post("/webauthn/factors/reset", body).status_code == (200 if status == 201 else 403)

"""Why a user cannot sign in, the pages that help, and the file with all data about the user."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tenants.entering.context import in_tenant
from tests.console.people.browsing import PEOPLE, operator_in, send, tenant_events, text_of
from tests.console.staff import Staff, new_tenant_admin
from tests.copies import change_mapping, change_tenant
from tests.mfa.people import new_user
from tests.userflow.mailbox import mails_to, token_in
from tests.world import PASSWORD, Api, TestTenant, User
from userflow.accounts.models import EndUser

CHROME = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36"
)


@pytest.fixture
def staff(tenant: TestTenant) -> Staff:
    return operator_in(tenant)


def page_of(person: Any) -> str:
    return f"{PEOPLE}{person.id}/"


def shown(staff: Staff, person: Any) -> str:
    return text_of(staff.get(page_of(person)))


def log_in(tenant: TestTenant, person: User, password: str = PASSWORD, agent: str = "") -> int:
    body = {"client_id": str(tenant.client_id), "email": person.email, "password": password}
    response = Api().post("/uflow/auth/enduser/login", body, headers={"User-Agent": agent})
    return int(response.status_code)


def of_user(tenant: TestTenant, action: str, person: User) -> dict[str, Any]:
    """Return the details of the user's newest event of this action."""
    return next(event.details for event in tenant_events(tenant, action) if event.target_id == str(person.id))


def test_lock_is_explained_and_ended(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    assert "Nothing on this account prevents a sign-in." in shown(staff, person)
    assert "unlock/" not in shown(staff, person)
    assert [log_in(tenant, person, "wrong wrong") for _ in range(6)] == [401] * 5 + [429]
    page = shown(staff, person)
    assert "5 wrong passwords from a network without an earlier sign-in." in page.split("Locked until ")[1]
    assert page.count("Sign-in rejected: wrong password") == 10
    assert send(staff, tenant, f"{page_of(person)}unlock/").status_code == 302
    assert of_user(tenant, "end_user.unlocked", person) == {"counters": 1}
    assert log_in(tenant, person) == 200
    assert "Locked until" not in shown(staff, person)


def test_each_cause_is_named(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    assert log_in(tenant, person, "wrong wrong") == 401
    assert "1 wrong password from a network" in shown(staff, person)
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk=person.id).update(password="", active=False)
    assert log_in(tenant, person) == 401
    page = shown(staff, person)
    for words in ("The user is deactivated.", "never set a password", "Sign-in rejected: the user has no password"):
        assert words in page, words
    assert "Nothing on this account" not in page
    assert "password/reset/" in page
    response = send(staff, tenant, f"{page_of(person)}password/reset/")
    assert (response.status_code, "This user is deactivated" in text_of(response)) == (400, True)


def test_policies_of_the_tenant_are_named(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    staff, person = operator_in(tenant), tenant.register()
    change_tenant(tenant.id, settings={"email_verification": "required", "mfa_policy": "required"})
    assert log_in(tenant, person) == 403
    page = shown(staff, person)
    for words in ("address is not verified, and this tenant", "requires a second factor, and the user has none"):
        assert words in page, words
    assert "Sign-in rejected: the e-mail address is not verified" in page
    assert send(staff, tenant, f"{page_of(person)}email/verify/", reason="Seen at the desk").status_code == 302
    assert of_user(tenant, "email.proven", person)["reason"] == "Seen at the desk"
    assert log_in(tenant, person) == 200
    assert "email/verify/" not in shown(staff, person)
    change_mapping(tenant.id, status="suspended")
    assert "The tenant is suspended, so none of its users can sign in." in shown(staff, person)
    response = send(staff, tenant, f"{page_of(person)}password/reset/")
    assert response.status_code == 400


def test_reset_mail_sets_new_password(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    # The page of the user is the first click, the form the second.
    assert f'href="{page_of(person)}password/reset/"' in shown(staff, person)
    assert send(staff, tenant, f"{page_of(person)}password/reset/").status_code == 302
    page = shown(staff, person)
    assert "Password reset requested" in page
    assert f"by {staff.username}" in page
    (sent,) = mails_to(person.email, "password")
    body = {"token": token_in(sent), "password": "a horse with 9 legs"}
    assert Api().post("/uflow/auth/enduser/password/reset", body).status_code == 200
    assert log_in(tenant, person, "a horse with 9 legs") == 200


def test_mails_by_admins_are_limited(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    statuses = [send(staff, tenant, f"{page_of(person)}password/reset/").status_code for _ in range(6)]
    assert statuses == [302] * 5 + [400]
    assert len(mails_to(person.email, "password")) == 5


def test_verification_mail_is_sent_again(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    assert send(staff, tenant, f"{page_of(person)}email/resend/").status_code == 302
    assert len(mails_to(person.email)) == 2
    token = token_in(mails_to(person.email)[-1])
    assert Api().post("/uflow/user/email/verify", {"token": token}).status_code == 200
    response = send(staff, tenant, f"{page_of(person)}email/resend/")
    assert "verified already" in text_of(response)
    assert "email/resend/" not in shown(staff, person)


def test_marked_address_ends_what_was_before(tenant: TestTenant, staff: Staff) -> None:
    person = new_user(tenant).enrol_totp()
    path = f"{page_of(person)}email/verify/"
    assert send(staff, tenant, path, reason=" ").status_code == 400
    staff.time_passes(minutes=16)
    assert send(staff, tenant, path, reason="desk").headers["Location"].startswith("/admin/reauthenticate/")
    assert send(operator_in(tenant), tenant, path, reason="desk").status_code == 302
    with in_tenant(tenant.id):
        user = EndUser.objects.get(pk=person.id)
    assert (user.email_verified_at is not None, user.mfa_methods) == (True, [])


@pytest.mark.parametrize("path", ["password/reset/", "email/resend/", "email/verify/", "unlock/"])
def test_users_of_higher_rank_stay_unchanged(tenant: TestTenant, path: str) -> None:
    person = tenant.register()
    role = {"name": f"strong-{person.id}", "permissions": ["endusers:delete"]}
    role_id = tenant.api.post("/authmgr/roles", role).json()["id"]
    tenant.api.post(f"/authmgr/roles/{role_id}/bindings", {"user_ids": [str(person.id)]})
    helper = new_tenant_admin(tenant, "endusers:read", "endusers:write").sign_in()
    response = send(helper, tenant, f"{page_of(person)}{path}", reason="desk")
    assert response.status_code == 400
    assert "This user holds permissions that you do not hold." in text_of(response)


def test_data_of_user_is_downloaded_once_audited(tenant: TestTenant, staff: Staff) -> None:
    person = new_user(tenant).enrol_totp()
    response = staff.get(f"{page_of(person)}data/")
    assert (response["Content-Type"], "no-store" in response["Cache-Control"]) == ("application/json", True)
    assert response["Content-Disposition"] == f'attachment; filename="user-{person.id}.json"'
    data = json.loads(response.content)
    assert (data["profile"]["email"], data["profile"]["roles"]) == (person.email, ["user"])
    assert [factor["kind"] for factor in data["factors"]["factors"]] == ["totp"]
    assert "end_user.registered" in {event["action"] for event in data["audit_events"]}
    for secret in (person.secret, "argon2", str(staff.id)):
        assert secret not in response.text
    # The list of factors has it masked.
    assert "phone_number" not in data
    assert of_user(tenant, "end_user.data_downloaded", person) == {}


def test_data_needs_every_permission_to_read(tenant: TestTenant) -> None:
    person = tenant.register()
    helper = operator_in(tenant, "endusers:read", "groups:read", "roles:read", "sessions:read")
    assert "data/" not in shown(helper, person)
    # Without the audit log, the reader sees no rejected sign-ins either.
    log_in(tenant, person, "wrong wrong")
    assert "1 wrong password" in shown(helper, person)
    assert "Sign-in rejected" not in shown(helper, person)


def test_browser_source_and_events_are_in_words(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    assert log_in(tenant, person, agent=CHROME) == 200
    group = tenant.api.post("/authmgr/groups", {"name": f"group-{person.id}"}).json()
    tenant.api.post(f"/authmgr/groups/{group['id']}/users", {"user_ids": [str(person.id)]})
    page = shown(staff, person)
    for words in (
        "Chrome 141 on Windows",
        "signed in with password",
        "Self-registration",
        "Password on this platform",
        "<span>Signed in with password</span>",
        f"Added to the group {group['name']}",
        f"by {tenant.admin.username}",
    ):
        assert words in page, words

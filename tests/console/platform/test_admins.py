"""Admin users, their invitations and roles in the console."""

import re
import secrets
from collections.abc import Callable
from typing import Any

import pytest

from identity_platform.api.email_addresses import email_address
from identity_platform.audit.models import PlatformEvent
from tenants.lifecycle.provisioning import suspend_tenant
from tenants.models import Tenant
from tenants.states import State
from tests.console.staff import Staff, new_auditor, new_operator, new_tenant_admin
from tests.userflow.mailbox import mails_to
from tests.world import PASSWORD, Api, TestTenant, capture_statements, sign_in_admin
from userflow.accounts.models import AdminUser
from userflow.invitations.models import AdminInvitation

LIST = "/admin/userflow/adminuser/"
INVITATIONS = "/admin/userflow/admininvitation/"


def at(user: Staff | AdminUser, page: str = "change") -> str:
    return f"{LIST}{user.id}/{page}/"


def as_operator() -> str:
    """Return what the form for an operator asks to type."""
    number = Tenant.objects.exclude(database__status=State.DELETED).count()
    return f"operator of all {number} tenants" if number != 1 else "operator of 1 tenant"


def form(**members: Any) -> dict[str, Any]:
    name = f"new-{secrets.token_hex(5)}"
    given = {
        "typed": as_operator(),
        "username": name,
        "email": f"{name}@example.com",
        "first_name": "New",
        "last_name": "One",
        "password": PASSWORD,
        "roles": ["auditor"],
    }
    return given | members


@pytest.fixture
def operator() -> Staff:
    return new_operator().sign_in()


@pytest.fixture
def head(tenant: TestTenant) -> Staff:
    """Return an admin of the tenant with all permissions there."""
    return new_tenant_admin(tenant).sign_in()


def last_event(user: Staff) -> str:
    return PlatformEvent.objects.filter(target_id=user.id).latest("id").action


def test_created_operator_signs_in(operator: Staff) -> None:
    asked = form(roles=["operator"])
    response = operator.post(f"{LIST}add/", asked)
    user = AdminUser.objects.get(username=asked["username"])
    assert (response.status_code, response.headers["Location"], user.tenant_id) == (302, at(user), None)
    assert sign_in_admin(user.username)["access_token"]


def test_tenant_admin_creates_admins_of_own_tenant_only(
    head: Staff, tenant: TestTenant, other_tenant: TestTenant
) -> None:
    for path, tenant_id, status in (
        ("add/?scope=platform", "", 403),
        ("add/", str(other_tenant.id), 409),
        ("add/", "", 409),
    ):
        asked = form(form_tenant_id=tenant_id)
        assert head.post(f"{LIST}{path}", asked).status_code == status
        assert not AdminUser.objects.filter(username=asked["username"]).exists()
    asked = form(form_tenant_id=str(tenant.id))
    assert head.post(f"{LIST}add/", asked).status_code == 302
    assert AdminUser.objects.get(username=asked["username"]).tenant_id == tenant.id


@pytest.mark.parametrize("page", [f"{LIST}add/", f"{INVITATIONS}add/"])
def test_open_tenant_is_the_scope_of_a_new_admin(operator: Staff, tenant: TestTenant, page: str) -> None:
    shown = operator.choose(tenant).get(page)
    (title,) = {shown.context["title"], shown.context["verb"]}
    assert tenant.name in title
    assert "typed" not in shown.context["form"].fields
    offered = {name for name, _label in shown.context["form"].fields["roles"].choices}
    assert ("tenant-admin" in offered, "operator" in offered) == (True, False)
    assert 'href="?scope=platform"' in shown.text
    # An operator is a choice of its own, which says what it gives.
    platform = operator.get(page, scope="platform")
    offered = {name for name, _label in platform.context["form"].fields["roles"].choices}
    assert ("tenant-admin" in offered, "operator" in offered) == (False, True)
    assert "operator of the platform" in platform.context["verb"]
    assert as_operator() in platform.text
    assert tenant.name not in platform.context["title"]


@pytest.mark.parametrize("typed", ["", "operator", "operator of all 0 tenants"])
def test_operator_is_not_made_without_the_typed_text(operator: Staff, tenant: TestTenant, typed: str) -> None:
    asked = form(typed=typed, roles=["operator"])
    for path in (f"{LIST}add/?scope=platform", f"{INVITATIONS}add/?scope=platform", f"{LIST}add/"):
        assert operator.post(path, asked).status_code == 400
    # A form for no tenant, or for the tenant that was open before, makes nothing else once another one is open.
    for path in (f"{LIST}add/", f"{INVITATIONS}add/"):
        assert operator.choose(tenant).post(path, form(roles=["operator"])).status_code == 409
    assert not AdminUser.objects.filter(username=asked["username"]).exists()
    assert not AdminInvitation.objects.filter(email=asked["email"]).exists()
    invited = f"{secrets.token_hex(6)}@example.com"
    body = {"typed": as_operator(), "email": invited, "roles": ["operator"]}
    assert operator.post(f"{INVITATIONS}add/?scope=platform", body).status_code == 302
    (mail,) = mails_to(invited)
    assert "become an operator of Identity platform" in mail.body


def test_invitation_names_the_tenant_in_its_mail(operator: Staff, tenant: TestTenant) -> None:
    invited = f"{secrets.token_hex(6)}@example.com"
    body = {"form_tenant_id": str(tenant.id), "email": invited, "roles": ["tenant-admin"]}
    assert operator.choose(tenant).post(f"{INVITATIONS}add/", body).status_code == 302
    (mail,) = mails_to(invited)
    assert f"become an admin user of {tenant.name}" in mail.body
    assert AdminInvitation.objects.get(email=invited).tenant_id == tenant.id


def test_validation_errors_are_shown_at_the_field(operator: Staff) -> None:
    weak = operator.post(f"{LIST}add/", form(password="password"))
    assert weak.status_code == 400
    assert weak.context["form"].errors["password"]
    assert 'value="password"' not in weak.text
    assert "not-an-address" in operator.post(f"{LIST}add/", form(email="not-an-address")).text


def test_a_record_and_its_roles_are_changed(operator: Staff, tenant: TestTenant) -> None:
    user = new_tenant_admin(tenant)
    changed = {
        "username": user.username,
        "email": user.email,
        "first_name": "Ann",
        "last_name": "",
        "roles": ["auditor"],
    }
    assert operator.post(at(user, "edit"), changed).status_code == 302
    row = user.row()
    assert (row.first_name, [role.name for role in row.roles.all()]) == ("Ann", ["auditor"])
    assert "Ann" in operator.get(at(user)).text


@pytest.mark.parametrize("page", ["edit", "deactivate", "reset-factors", "end-sessions"])
def test_operators_change_admins_of_a_suspended_tenant(
    operator: Staff, new_tenant: Callable[[], TestTenant], page: str
) -> None:
    tenant = new_tenant()
    user, other = new_tenant_admin(tenant), new_tenant_admin(tenant).sign_in()
    suspend_tenant(tenant_id=tenant.id)
    record = {"username": user.username, "email": user.email, "first_name": "Ann", "last_name": ""}
    body = {**record, "roles": ["auditor"], "reason": "asked for"}
    assert other.post(at(user, page), body).headers["Location"].startswith("/admin/login")
    response = operator.post(at(user, page), body)
    assert (response.status_code, response.headers.get("Location")) == (302, at(user)), response.text


def test_granting_unheld_permission_is_rejected(tenant: TestTenant) -> None:
    weak = new_tenant_admin(tenant, "admins:read", "admins:write", "audit:read").sign_in()
    user = new_tenant_admin(tenant, "audit:read")
    body = {"username": user.username, "email": user.email, "first_name": "", "last_name": ""}
    response = weak.post(at(user, "edit"), {**body, "roles": ["tenant-admin"]})
    assert (response.status_code, "not one of the available choices" in response.text) == (400, True)
    stronger = new_tenant_admin(tenant)
    for page in ("deactivate", "reset-factors"):
        assert weak.post(at(stronger, page), {"reason": "so"}).status_code == 400
    assert stronger.row().active


def test_own_roles_cannot_be_changed(head: Staff) -> None:
    page = head.get(at(head, "edit"))
    assert "roles" not in page.context["form"].fields
    body = {"username": head.username, "email": head.email, "first_name": "Me", "last_name": "", "roles": ["auditor"]}
    assert head.post(at(head, "edit"), body).status_code == 302
    assert [role.name for role in head.row().roles.all()] == ["tenant-admin"]


def test_admin_is_deactivated_and_activated(operator: Staff, tenant: TestTenant) -> None:
    user = new_tenant_admin(tenant).sign_in()
    operator.post(at(user, "deactivate"))
    assert (user.row().active, last_event(user)) == (False, "admin_user.deactivated")
    assert user.get("/admin/").status_code == 302
    operator.post(at(user, "activate"))
    assert user.row().active


def test_last_admin_and_own_account_cannot_be_deactivated(new_tenant: Any) -> None:
    tenant = new_tenant()
    operator = new_operator().sign_in()
    response = operator.post(f"{LIST}{tenant.admin.id}/deactivate/")
    assert (response.status_code, AdminUser.objects.get(pk=tenant.admin.id).active) == (400, True)
    assert operator.post(at(operator, "deactivate")).status_code == 400
    assert operator.row().active


def test_factors_are_reset_with_a_reason(operator: Staff, tenant: TestTenant) -> None:
    user = new_tenant_admin(tenant).enrol_totp()
    assert operator.post(at(user, "reset-factors"), {"reason": ""}).status_code == 400
    assert operator.post(at(user, "reset-factors"), {"reason": "Lost the phone"}).status_code == 302
    event = PlatformEvent.objects.filter(target_id=user.id, action="factor.reset").latest("id")
    assert (user.row().mfa_methods, event.details["reason"]) == ([], "Lost the phone")
    assert any("enrollment pass" in mail.body for mail in mails_to(user.email))


def test_own_new_address_needs_a_proof_in_the_form() -> None:
    operator = new_operator().sign_in()
    record = {"username": operator.username, "first_name": "Ann", "last_name": ""}
    new = {**record, "email": f"new-{operator.email}"}
    assert operator.post(at(operator, "edit"), {**record, "email": operator.email}).status_code == 302
    for proof in ({}, {"current_password": "wrong wrong"}, {"proof_token": "x" * 43}):
        assert operator.post(at(operator, "edit"), {**new, **proof}).status_code == 400
    assert (operator.row().email, operator.row().first_name) == (operator.email, "Ann")
    assert operator.post(at(operator, "edit"), {**new, "current_password": operator.password}).status_code == 302
    assert operator.row().email == new["email"]


def test_enrollment_pass_of_an_admin_user_is_shown_once(operator: Staff, tenant: TestTenant) -> None:
    user = new_tenant_admin(tenant)
    assert operator.post(at(user, "enrollment-pass"), {"deliver": "show"}).status_code == 400
    shown = operator.post(at(user, "enrollment-pass"), {"reason": "New phone", "deliver": "show"})
    (token,) = re.findall(r'id="secret"[^>]*>([^<]+)</pre>', shown.text)
    begun = Api().post("/webauthn/admin/totp/beginSetup", {"email": user.email}, headers={"X-Enrollment-Ticket": token})
    assert begun.status_code == 200, begun.content
    assert "Issue enrollment pass" not in operator.get(at(operator, "change")).text


def test_sessions_are_shown_and_ended(operator: Staff, tenant: TestTenant) -> None:
    user = new_tenant_admin(tenant).sign_in()
    token = user.api_token()
    # The random tokens of forms may contain these letters.
    assert not re.search(r"\botp\b", operator.get(at(user)).text)
    response = operator.post(at(user, "end-sessions"))
    assert response.status_code == 302
    assert "2 sessions have ended." in operator.get(at(user)).text
    assert (user.get("/admin/").status_code, Api(token=token).get("/uflow/admin/users/me").status_code) == (302, 401)


def test_auditor_reads_and_changes_nothing(tenant: TestTenant) -> None:
    user = new_tenant_admin(tenant)
    auditor = new_auditor(tenant).sign_in()
    assert auditor.get(at(user)).status_code == 200
    for page in ("edit", "activate", "deactivate", "reset-factors", "end-sessions"):
        for response in (auditor.get(at(user, page)), auditor.post(at(user, page), {"reason": "so"})):
            assert response.status_code == 403


def test_tenant_admin_sees_own_tenant_only(head: Staff, tenant: TestTenant, other_tenant: TestTenant) -> None:
    mine, foreign, operator = new_tenant_admin(tenant), new_tenant_admin(other_tenant), new_operator()
    page = head.get(f"{LIST}?q=staff-").text
    assert [user.username in page for user in (mine, foreign, operator)] == [True, False, False]
    for user in (foreign, operator):
        for name in ("change", "edit", "deactivate", "reset-factors", "end-sessions"):
            assert [head.get(at(user, name)).status_code, head.post(at(user, name)).status_code] == [404, 404]
        assert user.row().active


def test_the_list_costs_the_same_with_many_admins(new_tenant: Any) -> None:
    tenant = new_tenant()
    for _ in range(12):
        new_tenant_admin(tenant)
    head = new_tenant_admin(tenant).sign_in()
    with capture_statements() as seen:
        assert head.get(LIST).context["cl"].result_count == 14
    # Session, admin user, tenant; the number, the users with their tenants, and their roles.
    assert seen.counts == (6, 0), "\n".join(seen.default)


def test_admin_page_costs_the_same_for_all_users(head: Staff, tenant: TestTenant) -> None:
    user = new_tenant_admin(tenant).sign_in()
    with capture_statements() as seen:
        assert head.get(at(user)).status_code == 200
    # Session, admin user; the user with roles, tenant, sessions, events and their actors; the tenant of the bar.
    assert seen.counts == (9, 0), "\n".join(seen.default)


def test_admin_invitation_is_resent_and_cancelled(operator: Staff, tenant: TestTenant) -> None:
    email = f"{secrets.token_hex(6)}@example.com"
    operator.choose(tenant)
    body = {"form_tenant_id": str(tenant.id), "email": email, "roles": ["auditor"]}
    assert operator.post(f"{INVITATIONS}add/", body).status_code == 302
    row = AdminInvitation.objects.get(email=email)
    assert (row.tenant_id, row.roles, len(mails_to(email))) == (tenant.id, ["auditor"], 1)
    assert email in operator.get(f"{INVITATIONS}?q={email}&state=pending").text
    again = operator.post(f"{INVITATIONS}add/", body)
    assert (again.status_code, "This address has a pending invitation" in again.text) == (400, True)
    operator.post(f"{INVITATIONS}{row.pk}/resend/")
    assert len(mails_to(email)) == 2
    operator.post(f"{INVITATIONS}{row.pk}/cancel/")
    assert "cancelled" in operator.get(f"{INVITATIONS}{row.pk}/change/").text
    closed = operator.post(f"{INVITATIONS}{row.pk}/resend/")
    assert (closed.status_code, len(mails_to(email))) == (400, 2)


def test_invitations_of_other_tenants_are_404(head: Staff, operator: Staff, other_tenant: TestTenant) -> None:
    email = f"{secrets.token_hex(6)}@example.com"
    operator.choose(other_tenant).post(
        f"{INVITATIONS}add/", {"form_tenant_id": str(other_tenant.id), "email": email, "roles": ["auditor"]}
    )
    row = AdminInvitation.objects.get(email=email)
    assert email not in head.get(INVITATIONS).text
    for page in ("change", "resend", "cancel"):
        for response in (head.get(f"{INVITATIONS}{row.pk}/{page}/"), head.post(f"{INVITATIONS}{row.pk}/{page}/")):
            assert response.status_code == 404
    row.refresh_from_db()
    assert row.cancelled_at is None


def test_tenant_admin_sees_tenant_roles_only(head: Staff, operator: Staff) -> None:
    for person, sees in ((operator, True), (head, False)):
        page = person.get("/admin/userflow/adminrole/")
        names = set(page.context["cl"].queryset.values_list("name", flat=True))
        assert ({"auditor", "tenant-admin"} <= names, "operator" in names) == (True, sees)
    with capture_statements() as seen:
        head.get("/admin/userflow/adminrole/")
    assert seen.counts == (5, 0), "\n".join(seen.default)


def test_international_addresses_are_shown_and_found_in_both_forms(operator: Staff, tenant: TestTenant) -> None:
    mark = secrets.token_hex(4)
    shown, stored = f"ann@bücher-{mark}.example", email_address(f"ann@bücher-{mark}.example")
    user = new_tenant_admin(tenant)
    AdminUser.objects.filter(pk=user.id).update(email=stored, email_key=stored)
    operator.choose(tenant)
    form = {"form_tenant_id": str(tenant.id), "email": shown, "roles": ["auditor"]}
    assert operator.post(f"{INVITATIONS}add/", {**form, "email": f"new-{shown}"}).status_code == 302
    for path, address in ((LIST, shown), (INVITATIONS, f"new-{shown}")):
        for words in (shown.partition("@")[2], stored.partition("@")[2]):
            page = operator.get(path, q=words)
            assert page.context["cl"].result_count == 1, (path, words)
            assert (f"{address} <small" in page.text, stored in page.text) == (True, True)

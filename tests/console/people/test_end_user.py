"""The page of an end user, and the changes to it."""

import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tenants.entering.context import in_tenant
from tests.console.people.browsing import PEOPLE, USERS, operator_in, send, tenant_events, text_of
from tests.console.staff import Staff, new_auditor, new_tenant_admin
from tests.mfa.people import TestUser, new_user
from tests.userflow.mailbox import mails_to
from tests.world import Api, TestTenant, User
from userflow.accounts.models import EndUser

# The pages that change a user, and what each needs beside endusers:read.
CHANGES = {
    "edit/": "endusers:write",
    "activity/": "endusers:write",
    "erase/": "endusers:delete",
    "factors/reset/": "endusers:factors",
    "enrollment-pass/": "endusers:factors",
    "sessions/end/": "sessions:write",
    "groups/": "groups:write",
    "roles/": "roles:write",
}


@pytest.fixture
def staff(tenant: TestTenant) -> Staff:
    return operator_in(tenant)


def page_of(person: User | TestUser) -> str:
    return f"{PEOPLE}{person.id}/"


def stored(tenant: TestTenant, person: User | TestUser) -> EndUser | None:
    with in_tenant(tenant.id):
        return EndUser.objects.filter(pk=person.id).first()


def group_with_role(tenant: TestTenant, permission: str = "invoices:read") -> tuple[dict[str, Any], dict[str, Any]]:
    mark = uuid4().hex[:8]
    role = tenant.api.post("/authmgr/roles", {"name": f"role-{mark}", "permissions": [permission]}).json()
    group = tenant.api.post("/authmgr/groups", {"name": f"group-{mark}", "roles": [role["name"]]}).json()
    return group, role


def test_end_user_page_shows_related_rows(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register(name="Ada Lovelace")
    tenant.sign_in(person)
    group, role = group_with_role(tenant, "ledger:close")
    tenant.api.post(f"/authmgr/groups/{group['id']}/users", {"user_ids": [str(person.id)]})
    page = text_of(staff.get(page_of(person)))
    for shown in ("Ada Lovelace", person.email, group["name"], role["name"], "ledger:close", "signin.succeeded"):
        assert shown in page, shown
    assert f"/admin/inside/trail/?person={person.id}" in page
    (event,) = [event for event in tenant_events(tenant, "end_user.viewed") if event.target_id == str(person.id)]
    assert (event.actor_id, event.details) == (str(staff.id), {"console": True})


def test_the_page_shows_factors_and_no_secret(tenant: TestTenant, staff: Staff) -> None:
    person = new_user(tenant).enrol_totp()
    secret, codes = person.secret, person.backup_codes
    page = text_of(staff.get(page_of(person)))
    assert "Authenticator app" in page
    assert f"{len(codes)} backup codes left" in page
    assert secret not in page
    assert not [code for code in codes if code in page]
    assert "argon2" not in page


def test_auditor_sees_end_user_without_buttons(tenant: TestTenant) -> None:
    person = tenant.register()
    page = text_of(new_auditor(tenant).sign_in().get(page_of(person)))
    assert person.email in page
    assert not [path for path in CHANGES if f"{page_of(person)}{path}" in page]


def test_end_user_page_hides_parts_without_permission(tenant: TestTenant) -> None:
    person = tenant.register()
    group, _ = group_with_role(tenant)
    tenant.api.post(f"/authmgr/groups/{group['id']}/users", {"user_ids": [str(person.id)]})
    page = text_of(operator_in(tenant, "endusers:read").get(page_of(person)))
    assert person.email in page
    for title in ("roles", "groups", "sessions", "timeline"):
        assert f'id="{title}"' not in page


@pytest.mark.parametrize("path", ["", *CHANGES])
def test_end_users_of_other_tenant_are_404(tenant: TestTenant, other_tenant: TestTenant, path: str) -> None:
    foreign_user = other_tenant.register()
    for staff in (operator_in(tenant), new_tenant_admin(tenant).sign_in()):
        assert staff.get(f"{page_of(foreign_user)}{path}").status_code == 404
        assert send(staff, tenant, f"{page_of(foreign_user)}{path}", typed=foreign_user.email).status_code == 404
        assert send(staff, other_tenant, f"{page_of(foreign_user)}{path}", typed=foreign_user.email).status_code == 409
    assert stored(other_tenant, foreign_user) is not None
    assert not [event for event in tenant_events(tenant, "end_user.viewed") if event.target_id == str(foreign_user.id)]


@pytest.mark.parametrize("path", ["", *CHANGES])
def test_unknown_and_malformed_ids_are_404(tenant: TestTenant, staff: Staff, path: str) -> None:
    for key in (str(uuid4()), "nonsense", "1", "%00"):
        assert staff.get(f"{PEOPLE}{key}/{path}").status_code == 404


@pytest.mark.parametrize(("path", "permission"), CHANGES.items())
def test_changes_by_url_require_permission(tenant: TestTenant, path: str, permission: str) -> None:
    person = tenant.register()
    every = {"endusers:read", "groups:read", "roles:read", *CHANGES.values()}
    for staff in (
        operator_in(tenant, *sorted(every - {permission})),
        new_tenant_admin(tenant, *sorted(every - {permission})).sign_in(),
    ):
        refused = staff.get(f"{page_of(person)}{path}")
        assert refused.status_code == 403
        assert permission in text_of(refused)
        assert send(staff, tenant, f"{page_of(person)}{path}", typed=person.email).status_code == 403
    assert operator_in(tenant, *sorted(every)).get(f"{page_of(person)}{path}").status_code == 200


def test_fields_are_changed(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    new = f"new-{person.email}"
    form = {"name": "Ada", "email": new.upper(), "language": "fr", "metadata": '{"desk": 7}'}
    form |= {"app_metadata": '{"plan": "pro"}', "external_id": f"Crm-{person.id}"}
    response = send(staff, tenant, f"{page_of(person)}edit/", **form)
    assert response.headers["Location"] == page_of(person)
    user = stored(tenant, person)
    assert user is not None
    assert (user.name, user.email_key, user.language, user.metadata) == ("Ada", new, "fr", {"desk": 7})
    assert (user.app_metadata, user.external_id) == ({"plan": "pro"}, f"Crm-{person.id}")
    shown = staff.get(page_of(person)).content.decode()
    assert "<dd>français</dd>" in shown
    assert f"<code>Crm-{person.id}</code>" in shown
    assert "&quot;plan&quot;: &quot;pro&quot;" in shown
    # The list finds the whole id only, and an empty field removes it.
    lists = [staff.get(f"/admin/userflow/enduser/?q={text}{person.id}").text for text in ("Crm-", "rm-")]
    assert [page_of(person) in text for text in lists] == [True, False]
    send(staff, tenant, f"{page_of(person)}edit/", **form | {"external_id": ""})
    emptied = stored(tenant, person)
    assert emptied is not None
    assert (emptied.external_id, emptied.app_metadata) == (None, {"plan": "pro"})
    event = next(event for event in tenant_events(tenant, "end_user.updated") if event.target_id == str(person.id))
    assert (event.actor_kind, event.actor_id) == ("operator", str(staff.id))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("email", "nonsense"),
        ("email", ""),
        ("language", "pt"),
        ("metadata", "[1]"),
        ("metadata", "{"),
        ("app_metadata", "[1]"),
        ("external_id", "a\x00b"),
        ("name", "a\x00b"),
    ],
)
def test_edit_user_shows_validation_errors(tenant: TestTenant, staff: Staff, field: str, value: str) -> None:
    person = tenant.register()
    body = {"name": "Ada", "email": person.email, "metadata": "{}", field: value}
    response = send(staff, tenant, f"{page_of(person)}edit/", **body)
    assert response.status_code == 400
    assert "errorlist" in text_of(response) or "text-red-" in text_of(response)


def test_edit_user_rejects_taken_address_and_keeps_input(tenant: TestTenant, staff: Staff) -> None:
    person, other = tenant.register(), tenant.register()
    tenant.sign_in(other)
    response = send(staff, tenant, f"{page_of(person)}edit/", name="Typed Name", email=other.email, metadata="{}")
    assert response.status_code == 400
    assert "A user with this e-mail address already exists" in text_of(response)
    assert "Typed Name" in text_of(response)


def test_end_user_is_deactivated_and_activated(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    token = tenant.sign_in(person)["access_token"]
    send(staff, tenant, f"{page_of(person)}activity/", active="no")
    assert tenant.api.get("/authmgr/profile", token=token).status_code == 401
    assert "deactivated" in text_of(staff.get(page_of(person)))
    # A form that was rendered before does what it says.
    send(staff, tenant, f"{page_of(person)}activity/", active="no")
    user = stored(tenant, person)
    assert user is not None
    assert not user.active
    send(staff, tenant, f"{page_of(person)}activity/", active="yes")
    tenant.sign_in(person)


def test_sessions_are_ended_one_by_one_and_all(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    first, second, third = (tenant.sign_in(person) for _ in range(3))
    send(staff, tenant, f"{page_of(person)}sessions/{session_of(first)}/end/")
    assert [alive(tenant, signed_in) for signed_in in (first, second, third)] == [False, True, True]
    response = send(staff, tenant, f"{page_of(person)}sessions/end/")
    assert response.status_code == 302
    assert [alive(tenant, signed_in) for signed_in in (first, second, third)] == [False, False, False]
    assert "No active sessions." in text_of(staff.get(page_of(person)))


def session_of(signed_in: dict[str, Any]) -> str:
    listed = Api(token=signed_in["access_token"]).get("/authmgr/sessions").json()["sessions"]
    return next(str(session["id"]) for session in listed if session["current"])


def alive(tenant: TestTenant, signed_in: dict[str, Any]) -> bool:
    return bool(tenant.api.get("/authmgr/profile", token=signed_in["access_token"]).status_code == 200)


def test_end_session_rejects_session_of_other_user(tenant: TestTenant, staff: Staff) -> None:
    person, other = tenant.register(), tenant.register()
    session = tenant.sign_in(other)
    response = send(staff, tenant, f"{page_of(person)}sessions/{session_of(session)}/end/")
    assert response.status_code == 404
    assert alive(tenant, session)


def test_reset_factors_notifies_user(tenant: TestTenant, staff: Staff) -> None:
    person = new_user(tenant).enrol_totp()
    path = f"{page_of(person)}factors/reset/"
    assert send(staff, tenant, path, reason=" ").status_code == 400
    assert send(staff, tenant, path, reason="Phone lost, seen at the desk").status_code == 302
    user = stored(tenant, person)
    assert user is not None
    assert user.mfa_methods == []
    event = next(event for event in tenant_events(tenant, "factor.reset") if event.target_id == str(person.id))
    assert event.details["reason"] == "Phone lost, seen at the desk"
    assert any("removed by an administrator" in sent.body for sent in mails_to(person.email))


def test_erase_requires_typed_address(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    tenant.register()
    path = f"{page_of(person)}erase/"
    assert send(staff, tenant, path, typed="other@example.com").status_code == 400
    assert stored(tenant, person) is not None
    assert send(staff, tenant, path, typed=person.email).headers["Location"] == USERS
    assert stored(tenant, person) is None
    assert staff.get(page_of(person)).status_code == 404


def test_last_active_user_cannot_be_erased(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    person = tenant.register()
    response = send(operator_in(tenant), tenant, f"{page_of(person)}erase/", typed=person.email)
    assert response.status_code == 400
    assert "The last active user of a tenant cannot be erased" in text_of(response)


def test_groups_and_roles_are_changed(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    (group, role), (other, _) = group_with_role(tenant), group_with_role(tenant)
    send(staff, tenant, f"{page_of(person)}groups/", chosen=[group["id"], other["id"]], was="")
    send(staff, tenant, f"{page_of(person)}groups/", chosen=[group["id"]], was=f"{group['id']},{other['id']}")
    send(staff, tenant, f"{page_of(person)}roles/", chosen=[role["id"]], was="")
    page = text_of(staff.get(page_of(person)))
    assert group["name"] in page
    assert other["name"] not in page.split('id="timeline"')[0].split('id="groups"')[1]
    assert f"through {group['name']}" in page
    joined = [event for event in tenant_events(tenant, "group.joined") if event.target_id == str(person.id)]
    assert {event.actor_id for event in joined} == {str(staff.id)}


def test_concurrent_role_changes_are_kept(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    (group, _), (other, _) = group_with_role(tenant), group_with_role(tenant)
    tenant.api.post(f"/authmgr/groups/{other['id']}/users", {"user_ids": [str(person.id)]})
    # Rendered before the other group was added.
    send(staff, tenant, f"{page_of(person)}groups/", chosen=[group["id"]], was="")
    page = text_of(staff.get(page_of(person)))
    assert group["name"] in page
    assert other["name"] in page


def test_granting_unheld_permission_changes_nothing(tenant: TestTenant) -> None:
    person = tenant.register()
    staff = operator_in(tenant, "endusers:read", "groups:read", "groups:write", "roles:read", "roles:write")
    (mild, mild_role), (strong, strong_role) = group_with_role(tenant), group_with_role(tenant, "endusers:delete")
    for path, chosen in (
        ("groups/", [mild["id"], strong["id"]]),
        ("roles/", [mild_role["id"], strong_role["id"]]),
    ):
        response = send(staff, tenant, f"{page_of(person)}{path}", chosen=chosen, was="")
        assert response.status_code == 400
        assert "you do not hold it yourself" in text_of(response)
    page = text_of(operator_in(tenant).get(page_of(person)))
    assert "No groups." in page
    assert mild_role["name"] not in page


def test_enrollment_pass_is_shown_once_or_mailed(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    path = f"{page_of(person)}enrollment-pass/"
    assert path in text_of(staff.get(page_of(person)))
    assert send(staff, tenant, path, deliver="show").status_code == 400
    shown = send(staff, tenant, path, reason="new phone", deliver="show")
    (token,) = re.findall(r'id="secret"[^>]*>([^<]+)</pre>', shown.text)
    assert "no-store" in shown.headers["Cache-Control"]
    named = {"email": person.email, "tenant_id": str(tenant.id), "client_id": str(tenant.client_id)}
    begun = Api().post("/webauthn/totp/beginSetup", named, headers={"X-Enrollment-Ticket": token})
    assert begun.status_code == 200, begun.content
    assert send(staff, tenant, path, reason="new phone", deliver="mail").status_code == 302
    issued = [event for event in tenant_events(tenant, "enrollment_pass.issued") if event.target_id == str(person.id)]
    assert {event.details["delivery"] for event in issued} == {"show", "mail"}


def test_assurance_table_actions_require_step_up(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    staff.time_passes(minutes=16)
    for path in ("factors/reset/", "edit/", "roles/", "sessions/end/"):
        response = send(staff, tenant, f"{page_of(person)}{path}", reason="lost")
        assert response.headers["Location"].startswith("/admin/reauthenticate/")


def test_end_user_is_registered(tenant: TestTenant, staff: Staff) -> None:
    email = f"new-{uuid4().hex[:8]}@example.com"
    form = {"email": email, "name": "New", "client_id": str(tenant.client_id)}
    weak = send(staff, tenant, f"{PEOPLE}register/", **form, password="password")
    assert weak.status_code == 400
    assert send(staff, tenant, f"{PEOPLE}register/", **form, password="a horse with 9 legs").status_code == 302
    assert email in text_of(staff.get(USERS, q=email))
    again = send(staff, tenant, f"{PEOPLE}register/", **form, password="a horse with 9 legs")
    assert "A user with this e-mail address already exists" in text_of(again)


def test_register_rejects_client_of_other_tenant(tenant: TestTenant, other_tenant: TestTenant, staff: Staff) -> None:
    form = {"email": "x@example.com", "client_id": str(other_tenant.client_id), "password": "a horse with 9 legs"}
    assert str(other_tenant.client_id) not in text_of(staff.get(f"{PEOPLE}register/"))
    assert send(staff, tenant, f"{PEOPLE}register/", **form).status_code == 400


def test_user_events_name_visible_actors_only(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    send(staff, tenant, f"{page_of(person)}activity/", active="no")
    assert staff.username in text_of(staff.get(page_of(person)))
    seen_by_admin = text_of(new_tenant_admin(tenant).sign_in().get(page_of(person)))
    assert "end_user.deactivated" in seen_by_admin
    assert staff.username not in seen_by_admin

"""Changes of several users that are selected in the list."""

from typing import Any
from uuid import uuid4

import pytest

from tenants.entering.context import in_tenant
from tests.console.people.browsing import PEOPLE, USERS, operator_in, send, text_of
from tests.console.staff import Staff, new_auditor, new_tenant_admin
from tests.world import TestTenant, User
from userflow.accounts.models import EndUser, GroupMembership
from userflow.accounts.session_models import EndUserSession

DEACTIVATE, END, GROUP = (f"{PEOPLE}{name}/" for name in ("deactivate", "end-sessions", "add-to-group"))


@pytest.fixture
def staff(tenant: TestTenant) -> Staff:
    return operator_in(tenant)


def ids(*people: User) -> str:
    return ",".join(str(person.id) for person in people)


def active(tenant: TestTenant, *people: User) -> list[bool]:
    with in_tenant(tenant.id):
        return [EndUser.objects.get(pk=person.id).active for person in people]


def select(staff: Staff, action: str, *people: User) -> Any:
    """Send the form of the list."""
    return staff.post(USERS, {"action": action, "_selected_action": [str(person.id) for person in people]})


def test_selection_is_confirmed_and_changed(tenant: TestTenant, staff: Staff) -> None:
    ann, bob, other = (tenant.register() for _ in range(3))
    assert 'value="deactivate_people"' in text_of(staff.get(USERS))
    path = select(staff, "deactivate_people", ann, bob).headers["Location"]
    page = text_of(staff.get(path))
    assert ann.email in page
    assert bob.email in page
    response = send(staff, tenant, DEACTIVATE, selected=ids(ann, bob))
    assert response.headers["Location"] == USERS
    assert "2 users are deactivated." in text_of(staff.get(USERS))
    assert active(tenant, ann, bob, other) == [False, False, True]


def test_failures_are_named_with_reason(tenant: TestTenant) -> None:
    ann, strong = tenant.register(), tenant.register()
    body = {"name": f"strong-{uuid4().hex[:8]}", "permissions": ["endusers:delete"]}
    role = tenant.api.post("/authmgr/roles", body).json()
    tenant.api.post(f"/authmgr/roles/{role['id']}/bindings", {"user_ids": [str(strong.id)]})
    helper = new_tenant_admin(tenant, "endusers:read", "endusers:write").sign_in()
    response = send(helper, tenant, DEACTIVATE, selected=ids(ann, strong))
    page = text_of(response)
    assert (response.status_code, "1 user is deactivated." in page) == (200, True)
    assert strong.email in page
    assert "This user holds permissions that you do not hold." in page
    assert ann.email not in page
    assert active(tenant, ann, strong) == [False, True]


def test_sessions_of_selected_users_end(tenant: TestTenant, staff: Staff) -> None:
    ann, bob = tenant.register(), tenant.register()
    for person in (ann, bob):
        tenant.sign_in(person)
    assert send(staff, tenant, END, selected=ids(ann)).status_code == 302
    with in_tenant(tenant.id):
        assert EndUserSession.objects.get(user_id=ann.id).ended_at is not None
        assert EndUserSession.objects.get(user_id=bob.id).ended_at is None


def test_selected_users_join_a_group(tenant: TestTenant, staff: Staff) -> None:
    ann, bob = tenant.register(), tenant.register()
    group = tenant.api.post("/authmgr/groups", {"name": f"group-{uuid4().hex[:8]}"}).json()
    assert group["name"] in text_of(staff.get(GROUP, selected=ids(ann)))
    assert send(staff, tenant, GROUP, selected=ids(ann, bob), group=str(uuid4())).status_code == 400
    assert send(staff, tenant, GROUP, selected=ids(ann, bob), group=group["id"]).status_code == 302
    with in_tenant(tenant.id):
        assert GroupMembership.objects.filter(group_id=group["id"]).count() == 2


def test_users_who_are_gone_are_named(tenant: TestTenant, staff: Staff) -> None:
    ann, gone = tenant.register(), uuid4()
    selected = f"{ids(ann)},{gone}"
    assert "1 selected user no longer exists and is left out." in text_of(staff.get(DEACTIVATE, selected=selected))
    page = text_of(send(staff, tenant, DEACTIVATE, selected=selected))
    assert ("1 user is deactivated." in page, str(gone) in page, "no longer exists" in page) == (True, True, True)
    assert active(tenant, ann) == [False]
    assert "The selected users no longer exist." in text_of(send(staff, tenant, DEACTIVATE, selected=str(gone)))


def test_selection_of_other_tenant_is_not_found(tenant: TestTenant, other_tenant: TestTenant, staff: Staff) -> None:
    foreign = other_tenant.register()
    response = send(staff, tenant, DEACTIVATE, selected=ids(foreign))
    assert (response.status_code, foreign.email in text_of(response)) == (400, False)
    assert send(staff, other_tenant, DEACTIVATE, selected=ids(foreign)).status_code == 409
    assert active(other_tenant, foreign) == [True]


def test_selection_must_be_valid(tenant: TestTenant, staff: Staff) -> None:
    assert "Select at least one user" in text_of(send(staff, tenant, DEACTIVATE, selected="nonsense,\x00"))
    many = ",".join(str(uuid4()) for _ in range(101))
    assert "Select at most 100 users" in text_of(send(staff, tenant, DEACTIVATE, selected=many))
    for action, people in (("delete_selected", [tenant.register()]), ("deactivate_people", [])):
        assert select(staff, action, *people).headers["Location"] == USERS


def test_list_offers_permitted_actions_only(tenant: TestTenant) -> None:
    auditor = new_auditor(tenant).sign_in()
    assert 'name="action"' not in text_of(auditor.get(USERS))
    person = tenant.register()
    assert select(auditor, "deactivate_people", person).headers["Location"] == USERS
    assert send(auditor, tenant, DEACTIVATE, selected=ids(person)).status_code == 403
    signing_out = operator_in(tenant, "endusers:read", "sessions:write")
    page = text_of(signing_out.get(USERS))
    assert ("end_sessions_of_people" in page, "deactivate_people" in page) == (True, False)

"""The open tenant's own audit log in the console: search by name, names, hidden views, export."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from identity_platform.audit.models import PlatformEvent
from tests.console.people.browsing import operator_in, send, tenant_events, text_of
from tests.console.staff import Staff, new_tenant_admin
from tests.identity_platform.audit.conftest import fill
from tests.world import TestTenant, User, capture_statements
from userflow.audit.actions import READ_AT_MOST

LOG = "/admin/inside/trail/"
EXPORT = f"{LOG}export/"
SIGNED_IN = "signin.succeeded"


@pytest.fixture
def staff(tenant: TestTenant) -> Staff:
    return operator_in(tenant)


@pytest.fixture
def person(tenant: TestTenant) -> User:
    someone = tenant.register()
    tenant.sign_in(someone)
    return someone


def codes(response: Any) -> list[str]:
    return [event.code for event in response.context["events"]]


def test_person_is_found_by_address_as_actor_and_target(tenant: TestTenant, staff: Staff, person: User) -> None:
    for name in (person.email, person.email.upper(), str(person.id)):
        page = staff.get(LOG, person=name)
        assert codes(page) == [SIGNED_IN, "end_user.registered"]
    signed_in, registered = page.context["events"]
    link = f"/admin/inside/people/{person.id}/"
    assert [(cell.text, cell.link) for cell in (signed_in.actor, registered.target)] == [(person.email, link)] * 2
    assert codes(staff.get(LOG, actor=person.email)) == [SIGNED_IN]


def test_search_by_action_and_time(staff: Staff, person: User) -> None:
    for query, found in (
        ({"action": "end_user.registered"}, ["end_user.registered"]),
        ({"action": "end_user.erased"}, []),
        ({"since": "2020-01-01T00:00"}, [SIGNED_IN, "end_user.registered"]),
        ({"until": "2020-01-01T00:00"}, []),
        ({"since": "2999-01-01T00:00"}, []),
        ({"actor": str(uuid4())}, []),
    ):
        assert codes(staff.get(LOG, person=person.email, **query)) == found, query


def test_address_search_requires_endusers_read(tenant: TestTenant, person: User) -> None:
    auditor = operator_in(tenant, "audit:read")
    by_address = auditor.get(LOG, person=person.email)
    assert (by_address.status_code, "needs the permission endusers:read" in text_of(by_address)) == (400, True)
    by_id = auditor.get(LOG, person=str(person.id))
    assert (codes(by_id), person.email in text_of(by_id)) == ([SIGNED_IN, "end_user.registered"], False)


def test_views_are_hidden_unless_wanted(tenant: TestTenant, staff: Staff, person: User) -> None:
    staff.get(f"/admin/inside/people/{person.id}/")
    assert "end_user.viewed" not in codes(staff.get(LOG, person=person.email))
    assert codes(staff.get(LOG, person=person.email, views="on"))[0] == "end_user.viewed"
    assert codes(staff.get(LOG, person=person.email, action="end_user.viewed")) == ["end_user.viewed"]
    assert tenant_events(tenant, "audit.viewed")[0].details == {"console": True, "filters": ["action", "person"]}


def test_search_continues_where_a_page_stopped_reading(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    staff = operator_in(tenant)
    fill(tenant, 5)
    fill(tenant, 2 * READ_AT_MOST + 2_000, action="audit.viewed")
    page, seen = staff.get(LOG), 1
    assert (codes(page), "Continue with older events" in text_of(page)) == ([], True)
    while not codes(page):
        page, seen = staff.browser.get(LOG + page.context["older"]), seen + 1
    assert (set(codes(page)), seen) == ({"test.filled"}, 3)


def test_objects_in_details_have_names(tenant: TestTenant, staff: Staff, person: User) -> None:
    group = tenant.api.post("/authmgr/groups", {"name": f"Tellers {person.id}"}).json()
    tenant.api.post(f"/authmgr/groups/{group['id']}/users", {"user_ids": [str(person.id)]})
    (joined,) = staff.get(LOG, target=person.email, action="group.joined").context["events"]
    named = {cell.text: cell.link for _label, cell in joined.facts if cell.link}
    assert named == {group["name"]: f"/admin/inside/groups/{group['id']}/"}


def test_names_need_the_permission_of_their_kind(tenant: TestTenant, person: User) -> None:
    group = tenant.api.post("/authmgr/groups", {"name": f"Secret {person.id}"}).json()
    page = text_of(operator_in(tenant, "audit:read").get(LOG, target=group["id"]))
    assert ("Group created" in page, group["id"] in page, group["name"] in page) == (True, True, False)


def test_tenant_admin_sees_no_name_of_an_operator(tenant: TestTenant, staff: Staff, person: User) -> None:
    staff.get(f"/admin/inside/people/{person.id}/")
    head = new_tenant_admin(tenant).sign_in()
    page = head.get(LOG, person=person.email, action="end_user.viewed")
    assert [event.actor.text for event in page.context["events"]] == ["an operator"]
    assert (staff.username in text_of(page), str(staff.id) in text_of(page)) == (False, False)
    assert head.get(LOG, actor=staff.username).status_code == 400


def test_log_of_other_tenant_is_not_shown(tenant: TestTenant, other_tenant: TestTenant, staff: Staff) -> None:
    foreign_user = other_tenant.register()
    for someone in (staff, new_tenant_admin(tenant).sign_in()):
        assert codes(someone.get(LOG, target=str(foreign_user.id))) == []
        by_address = someone.get(LOG, person=foreign_user.email)
        assert (by_address.status_code, "No user has this address." in text_of(by_address)) == (400, True)


@pytest.mark.parametrize(
    "query",
    [
        {"since": "yesterday"},
        {"until": "9999-99-99"},
        {"before": "x"},
        {"before": "-1"},
        {"before": "9" * 30},
        {"action": "\x00"},
        {"action": "x.y"},
        {"target": "no-such-thing"},
    ],
)
def test_wrong_filter_is_400(staff: Staff, query: dict[str, str]) -> None:
    response = staff.get(LOG, **query)
    assert (response.status_code, response.context["events"]) == (400, [])


@pytest.mark.parametrize("moment", ["0001-01-01T00:00", "9999-12-31T23:59"])
def test_any_moment_is_accepted(staff: Staff, moment: str) -> None:
    assert [staff.get(LOG, **{name: moment}).status_code for name in ("since", "until")] == [200, 200]


def test_page_costs_the_same_for_any_search(tenant: TestTenant, staff: Staff, person: User) -> None:
    staff.just_seen()
    for query, counts in (
        # Session, staff, tenant, its database, client; the event of this view, the page, whether it reads on, people.
        ({"person": str(person.id)}, (5, 4)),
        ({"person": person.email}, (5, 5)),
        ({"person": str(person.id), "since": "2020-01-01T00:00"}, (5, 4)),
    ):
        with capture_statements() as seen:
            assert staff.get(LOG, **query).status_code == 200
        assert seen.counts == counts, "\n".join(seen.default + seen.tenant)


def test_export_is_audited_and_filtered(tenant: TestTenant, staff: Staff, person: User) -> None:
    assert "Show views" in text_of(staff.get(EXPORT, person=person.email))
    filters = {"person": person.email, "action": "end_user.registered"}
    response = send(staff, tenant, EXPORT, form="jsonl", **filters)
    (event,) = [json.loads(line) for line in b"".join(response.streaming_content).splitlines()]
    assert (event["action"], event["target_id"]) == ("end_user.registered", str(person.id))
    audited = PlatformEvent.objects.filter(action="audit.exported", tenant_id=tenant.id).latest("id")
    assert (audited.actor_id, audited.target_id) == (str(staff.id), str(tenant.id))
    rows = csv.DictReader(io.StringIO(b"".join(send(staff, tenant, EXPORT, form="csv", **filters)).decode()))
    assert [row["target_id"] for row in rows] == [str(person.id)]


def test_export_requires_permission_and_the_open_tenant(
    tenant: TestTenant, other_tenant: TestTenant, staff: Staff
) -> None:
    before = PlatformEvent.objects.filter(action="audit.exported").count()
    outsider = operator_in(tenant, "endusers:read")
    assert send(outsider, tenant, EXPORT, form="csv").status_code == 403
    assert send(staff, other_tenant, EXPORT, form="csv").status_code == 409
    assert send(staff, tenant, EXPORT, form="csv", person="no.one@example.com").status_code == 400
    assert PlatformEvent.objects.filter(action="audit.exported").count() == before


def test_one_link_and_a_switch_lead_to_both_logs(tenant: TestTenant, staff: Staff) -> None:
    menu = text_of(staff.get("/admin/inside/invitations/"))
    assert (menu.count(f'href="{LOG}"'), menu.count('href="/admin/platform/audit/"')) == (1, 0)
    assert 'href="/admin/platform/audit/"' in text_of(staff.get(LOG))
    assert f'href="{LOG}"' in text_of(staff.get("/admin/platform/audit/"))

"""Reading and exporting the trails: access, filters and pages."""

import io
import json
import secrets
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command

from tests.identity_platform.audit.conftest import fill
from tests.world import PASSWORD, Api, TestTenant, capture_statements, sign_in_admin

AUDIT = "/uflow/admin/audit"
UNKNOWN = "00000000-0000-4000-8000-000000000000"


def events(api: Api, **query: Any) -> list[dict[str, Any]]:
    response = api.get(AUDIT, query)
    assert response.status_code == 200, response.content
    return list(response.json()["events"])


def test_event_names_actor_action_target_and_address(tenant: TestTenant) -> None:
    person = tenant.register()
    response = tenant.api.put(
        f"/uflow/user/enduser/{tenant.id}/{person.id}/status",
        {"active": False},
        headers={"X-Request-ID": "seen-in-audit"},
    )
    assert response.status_code == 200
    (event,) = events(tenant.api, target=str(person.id), action="end_user.deactivated")
    assert event | {"id": 0, "at": ""} == {
        "id": 0,
        "at": "",
        "action": "end_user.deactivated",
        "outcome": "success",
        "actor_kind": "admin",
        "actor_id": str(tenant.admin.id),
        "target_kind": "end_user",
        "target_id": str(person.id),
        "address": tenant.api.address,
        "request_id": "seen-in-audit",
        "details": {},
    }


def test_pages_join_without_gaps_while_events_arrive(tenant: TestTenant) -> None:
    fill(tenant, 7)
    first = tenant.api.get(AUDIT, {"action": "test.filled", "limit": "3"}).json()
    fill(tenant, 2)
    second = tenant.api.get(AUDIT, {"action": "test.filled", "limit": "4", "cursor": str(first["next_cursor"])}).json()
    assert [event["details"]["n"] for event in first["events"] + second["events"]] == [7, 6, 5, 4, 3, 2, 1]
    last = tenant.api.get(AUDIT, {"cursor": "1"}).json()
    assert (last["events"], last["next_cursor"]) == ([], None)


def test_full_last_page_has_no_next(tenant: TestTenant) -> None:
    mark = tenant.register()
    assert len(events(tenant.api, target=str(mark.id), limit="1")) == 1
    assert tenant.api.get(AUDIT, {"target": str(mark.id), "limit": "1"}).json()["next_cursor"] is None


def test_filters_by_actor_and_time(tenant: TestTenant) -> None:
    person = tenant.register()
    tenant.sign_in(person)
    (signed_in,) = events(tenant.api, actor=str(person.id), action="signin.succeeded")
    at = signed_in["at"]
    assert len(events(tenant.api, actor=str(person.id), action="signin.succeeded", **{"from": at})) == 1
    assert events(tenant.api, actor=str(person.id), action="signin.succeeded", to=at) == []
    assert events(tenant.api, actor=str(person.id), action="signin.refused") == []


@pytest.mark.parametrize(
    "query",
    [
        {"cursor": "0"},
        {"cursor": "x"},
        {"cursor": "99999999999999999999"},
        {"limit": "0"},
        {"from": "yesterday"},
        {"to": "2030-01-01"},
        {"trail": "mine"},
        {"tenant_id": "x"},
    ],
)
def test_invalid_filter_is_400_and_named(tenant: TestTenant, query: dict[str, str]) -> None:
    response = tenant.api.get(AUDIT, query)
    assert (response.status_code, list(response.json()["details"])) == (400, list(query))


def test_tenant_admin_reads_own_and_platform_events_about_it(
    new_tenant: Callable[[], TestTenant], other_tenant: TestTenant
) -> None:
    # A new tenant: its creation must be among the hundred newest events.
    tenant = new_tenant()
    mine, theirs = tenant.register(), other_tenant.register()
    assert len(events(tenant.api, target=str(mine.id))) == 1
    assert events(tenant.api, target=str(theirs.id)) == []
    about_me = events(tenant.api, trail="platform", limit="100")
    assert {event["tenant_id"] for event in about_me} == {str(tenant.id)}
    assert {"tenant.created", "admin_user.created", "signin.succeeded"} <= {event["action"] for event in about_me}
    assert tenant.api.get(AUDIT, {"tenant_id": str(other_tenant.id)}).status_code == 403
    assert tenant.api.get(AUDIT, {"tenant_id": UNKNOWN}).status_code == 403


def test_operator_reads_platform_trail_or_a_tenant_trail(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    # New tenants: their creation is among the hundred newest events.
    tenant, other_tenant = new_tenant(), new_tenant()
    person = tenant.register()
    everything = events(operator, action="tenant.created", limit="100")
    assert {str(tenant.id), str(other_tenant.id)} <= {event["tenant_id"] for event in everything}
    assert len(events(operator, tenant_id=str(tenant.id), target=str(person.id))) == 1
    named = operator.get(AUDIT, {"target": str(person.id)}, headers={"X-Tenant-ID": str(tenant.id)})
    assert len(named.json()["events"]) == 1
    about = events(operator, tenant_id=str(tenant.id), trail="platform", limit="100")
    assert {event["tenant_id"] for event in about} == {str(tenant.id)}
    assert operator.get(AUDIT, {"tenant_id": UNKNOWN}).status_code == 404
    assert operator.get(AUDIT, {"trail": "tenant"}).status_code == 400


def test_reading_requires_audit_read(tenant: TestTenant) -> None:
    name = f"plain-{secrets.token_hex(4)}"
    body = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "first_name": "P", "last_name": "L"}
    tenant.api.post("/uflow/admin/users", {**body, "roles": ["user-manager"]})
    assert Api(token=sign_in_admin(name)["access_token"]).get(AUDIT).status_code == 403
    assert tenant.as_user(tenant.register()).get(AUDIT).status_code == 403
    assert Api().get(AUDIT).status_code == 401
    tenant.api.post(
        "/uflow/admin/users", {**body, "username": f"a{name}", "email": f"a{name}@example.com", "roles": ["auditor"]}
    )
    assert Api(token=sign_in_admin(f"a{name}")["access_token"]).get(AUDIT).status_code == 200


def test_rejections_are_audited_without_secrets(tenant: TestTenant) -> None:
    person = tenant.register()
    wrong = {"client_id": str(tenant.client_id), "email": person.email, "password": "Wr0ng-and-secret"}
    assert Api().post("/uflow/auth/enduser/login", wrong).status_code == 401
    (refused,) = events(tenant.api, target=str(person.id), action="signin.refused")
    assert refused["outcome"] == "refused"
    told = json.dumps(events(tenant.api, target=str(person.id), limit="100"))
    assert [word for word in (person.email, PASSWORD, "Wr0ng-and-secret", "Some One") if word in told] == []


def test_page_takes_one_statement_however_far_back(tenant: TestTenant) -> None:
    fill(tenant, 500)
    with capture_statements() as own:
        tenant.api.get(AUDIT, {"limit": "100", "cursor": "400"})
    with capture_statements() as platform:
        tenant.api.get(AUDIT, {"trail": "platform"})
    assert [len(own.default), len(own.tenant), len(platform.default), len(platform.tenant)] == [1, 1, 2, 0]


def export(*arguments: str) -> list[dict[str, Any]]:
    out, err = io.StringIO(), io.StringIO()
    call_command("export_audit", *arguments, stdout=out, stderr=err)
    lines = out.getvalue().splitlines()
    assert err.getvalue() == f"{len(lines)} events.\n"
    return [json.loads(line) for line in lines]


def test_export_lists_all_events_and_is_audited(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    tenant = new_tenant()
    fill(tenant, 2500)
    exported = export(tenant.slug)
    assert len(exported) >= 2500
    assert [event["id"] for event in exported] == sorted(event["id"] for event in exported)
    assert exported[-1]["details"] == {"n": 2500}
    assert export(str(tenant.id), "--from", "2100-01-01") == []
    assert len(events(operator, tenant_id=str(tenant.id), trail="platform", action="audit.exported")) == 2
    assert {event["action"] for event in export("--platform")} >= {"tenant.created", "audit.exported"}


def test_tenant_admins_do_not_see_who_the_operator_is(
    operator: Api, tenant: TestTenant, other_tenant: TestTenant
) -> None:
    for one in (tenant, other_tenant):
        assert operator.patch(f"/uflow/admin/tenants/{one.id}", {"name": one.name}).status_code == 200
    platform = {"trail": "platform", "action": "tenant.updated"}
    [seen] = events(tenant.api, **platform)[:1]
    assert (seen["actor_kind"], seen["actor_id"], seen["address"]) == ("operator", "", "")
    [known] = events(operator, **platform, tenant_id=str(tenant.id))[:1]
    assert (known["id"], known["actor_kind"], known["address"]) == (seen["id"], "operator", operator.address)
    assert events(tenant.api, **platform, actor=known["actor_id"]) == []
    assert events(operator, **platform, tenant_id=str(tenant.id), actor=known["actor_id"])
    own = events(tenant.api, trail="platform", actor=str(tenant.admin.id))
    assert own
    assert {event["actor_id"] for event in own} == {str(tenant.admin.id)}

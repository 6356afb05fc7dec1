"""Rejected calls of known callers are audited once a minute per operation, over the API and in the console."""

from collections import Counter
from typing import Any
from uuid import uuid4

import orjson
import pytest
from django.db import connections

from identity_platform.audit.models import PlatformEvent, TenantEvent
from tenants.entering.context import in_tenant
from tenants.middleware.rejections import record_leftovers
from tests.console.staff import new_operator, new_tenant_admin
from tests.identity_platform.api.conftest import absent_valkey, valkey
from tests.identity_platform.api.private_valkey import Valkey
from tests.openapi.test_optional_fields import document
from tests.parallel import run_concurrently
from tests.userflow.sessions.aged import aged
from tests.userflow.sessions.clients import basic, make_client
from tests.world import Api, TestTenant, User, capture_statements, seconds_left_in_window, sign_in_admin
from userflow.accounts.session_models import AdminSession

__all__ = ["absent_valkey", "valkey"]
GROUPS = "/authmgr/groups"


def events_of(tenant: TestTenant | None, actor: Any) -> list[dict[str, Any]]:
    """Return the details of the caller's rejections, oldest first."""
    if tenant is None:
        return _details(PlatformEvent, actor)
    with in_tenant(tenant.id):
        return _details(TenantEvent, actor)


def _details(model: Any, actor: Any) -> list[dict[str, Any]]:
    rows = model.objects.filter(action="access.rejected", actor_id=str(actor), outcome="refused")
    return list(rows.order_by("id").values_list("details", flat=True))


def test_missing_permission_is_audited_in_the_callers_tenant(tenant: TestTenant) -> None:
    person = tenant.register()
    api = tenant.as_user(person)
    response = api.get(GROUPS)
    assert response.status_code == 403
    listed = tenant.api.get("/uflow/admin/audit", {"action": "access.rejected", "actor": str(person.id)})
    (event,) = listed.json()["events"]
    assert (event["actor_kind"], event["outcome"], event["address"]) == ("end_user", "refused", api.address)
    assert event["request_id"] == response.headers["X-Request-ID"]
    assert event["details"] == {
        "method": "GET",
        "route": "authmgr/groups",
        "reason": "InsufficientScope",
        "permission": "groups:read",
        "count": 1,
    }


def test_foreign_tenant_is_audited_in_the_callers_trail(tenant: TestTenant, other_tenant: TestTenant) -> None:
    staff = new_tenant_admin(tenant)
    token = sign_in_admin(staff.username)["access_token"]
    responses = [
        Api(token=token).get(GROUPS, {"tenant_id": str(other_tenant.id)}),
        Api(token=token).get(f"/clientms/tenants/{other_tenant.id}/clients"),
    ]
    assert [response.status_code for response in responses] == [403, 403]
    found = events_of(tenant, staff.id)
    assert [(event["reason"], event["tenant_id"]) for event in found] == [("TenantMismatch", str(other_tenant.id))] * 2
    assert events_of(other_tenant, staff.id) == []


def test_operators_are_audited_in_the_platforms_trail(tenant: TestTenant) -> None:
    staff = new_operator("tenants:read")
    token = sign_in_admin(staff.username)["access_token"]
    assert Api(token=token).patch(f"/uflow/admin/tenants/{tenant.id}", {"name": "Mine"}).status_code == 403
    (event,) = events_of(None, staff.id)
    assert (event["method"], event["route"]) == ("PATCH", "uflow/admin/tenants/<str:tenant_id>")


def test_client_rejection_is_audited(tenant: TestTenant) -> None:
    client = make_client(tenant, scopes=["services:read"])
    granted = Api().post(
        "/authmgr/token",
        raw=b"grant_type=client_credentials",
        content_type="application/x-www-form-urlencoded",
        headers=basic(client),
    )
    assert Api(token=granted.json()["access_token"]).get(GROUPS).status_code == 403
    assert [event["route"] for event in events_of(tenant, client["client_id"])] == ["authmgr/groups"]


def test_lacking_assurance_is_audited(tenant: TestTenant) -> None:
    staff = new_operator()
    token = aged(sign_in_admin(staff.username)["access_token"], minutes=20)
    change = {"settings": {"self_registration": True}}
    response = Api(token=token).patch(f"/uflow/admin/tenants/{tenant.id}", change)
    assert (response.status_code, response.json()["code"]) == (401, "insufficient_user_authentication")
    assert [event["reason"] for event in events_of(None, staff.id)] == ["InsufficientAuthentication"]


def test_session_below_policy_is_audited(settings: Any) -> None:
    staff = new_operator()
    token = sign_in_admin(staff.username)["access_token"]
    settings.OPERATORS_REQUIRE_FACTOR = True
    assert Api(token=token).get("/uflow/admin/tenants").status_code == 401
    assert [event["reason"] for event in events_of(None, staff.id)] == ["FactorRequired"]


def test_rejection_by_an_action_is_audited_after_its_rollback(tenant: TestTenant) -> None:
    staff = new_tenant_admin(tenant, "admins:write", "admins:read")
    token = sign_in_admin(staff.username)["access_token"]
    changed = Api(token=token).put(f"/uflow/admin/users/{tenant.admin.id}", {"first_name": "Mallory"})
    assert changed.status_code == 403, changed.content
    assert [event["method"] for event in events_of(tenant, staff.id)] == ["PUT"]


@pytest.mark.parametrize("token", [None, "none of ours", "expired"])
def test_unknown_callers_are_not_audited(tenant: TestTenant, token: str | None) -> None:
    if token == "expired":
        staff = new_tenant_admin(tenant)
        token = sign_in_admin(staff.username)["access_token"]
        AdminSession.objects.filter(user_id=staff.id).delete()
    api = Api(token=token)
    assert api.get(GROUPS).status_code == 401
    with in_tenant(tenant.id):
        assert not TenantEvent.objects.filter(action="access.rejected", address=api.address).exists()
    assert not PlatformEvent.objects.filter(action="access.rejected", address=api.address).exists()


def register_early_in_window(tenant: TestTenant) -> User:
    """Register a user whose minute for rejected requests of `GROUPS` does not end in the next 40 seconds."""
    while True:
        person = tenant.register()
        key = orjson.dumps([str(tenant.id), "end_user", str(person.id), "GET", GROUPS.strip("/")]).decode()
        if seconds_left_in_window(key, 60) > 40:
            return person


def use(valkey: Valkey, settings: Any) -> None:
    """Use a Valkey server of this test."""
    settings.REDIS_URL = valkey.url
    settings.CACHES = {**settings.CACHES, "ratelimit": {**settings.CACHES["ratelimit"], "LOCATION": valkey.url}}


def a_minute_passes(valkey: Valkey) -> None:
    """End the windows of all limits; other counters stay."""
    for key in valkey.client().keys("*"):
        if not key.endswith(b":rejected"):
            valkey.client().delete(key)


def test_rejections_are_one_event_a_minute_with_a_count(settings: Any, tenant: TestTenant, valkey: Valkey) -> None:
    use(valkey, settings)
    person = register_early_in_window(tenant)
    api = tenant.as_user(person)
    for _ in range(7):
        assert api.get(GROUPS).status_code == 403
    assert [event["count"] for event in events_of(tenant, person.id)] == [1]
    a_minute_passes(valkey)
    assert api.get(GROUPS).status_code == 403
    assert [event["count"] for event in events_of(tenant, person.id)] == [1, 7]


def test_periodic_job_counts_last_rejections(settings: Any, tenant: TestTenant, valkey: Valkey) -> None:
    use(valkey, settings)
    person = register_early_in_window(tenant)
    api = tenant.as_user(person)
    for _ in range(4):
        api.get(GROUPS)
    assert record_leftovers() == 0
    a_minute_passes(valkey)
    assert (record_leftovers(), record_leftovers()) == (1, 0)
    assert events_of(tenant, person.id)[1:] == [{"method": "GET", "route": "authmgr/groups", "count": 3}]
    assert valkey.client().keys("*:rejected") == []


def test_parallel_rejections_are_all_counted_once(settings: Any, tenant: TestTenant, valkey: Valkey) -> None:
    use(valkey, settings)
    person = register_early_in_window(tenant)
    token = tenant.as_user(person).token
    responses = run_concurrently([lambda: Api(token=token).get(GROUPS)] * 12)
    assert Counter(response.status_code for response in responses) == {403: 12}
    assert len(events_of(tenant, person.id)) == 1
    a_minute_passes(valkey)
    record_leftovers()
    assert sum(event["count"] for event in events_of(tenant, person.id)) == 12


def test_repeated_rejection_needs_no_statement(tenant: TestTenant) -> None:
    api = tenant.as_user(register_early_in_window(tenant))
    api.get(GROUPS)
    with capture_statements() as made:
        assert api.get(GROUPS).status_code == 403
    # Tenant, client, session, user and roles in one.
    assert made.counts == (0, 1)


@pytest.mark.parametrize("fault", ["kill", "hang"])
def test_rejection_is_returned_without_valkey(settings: Any, tenant: TestTenant, valkey: Valkey, fault: str) -> None:
    use(valkey, settings)
    person = register_early_in_window(tenant)
    api = tenant.as_user(person)
    getattr(valkey, fault)()
    assert [api.get(GROUPS).status_code for _ in range(3)] == [403] * 3
    assert [event["count"] for event in events_of(tenant, person.id)] == [1]


def test_rejection_is_returned_when_audit_fails(settings: Any, new_tenant: Any, valkey: Valkey) -> None:
    use(valkey, settings)
    own = new_tenant()
    staff = new_tenant_admin(own, "groups:read")
    api = Api(token=sign_in_admin(staff.username)["access_token"])
    with in_tenant(own.id), connections["tenant"].cursor() as cursor:
        cursor.execute("ALTER TABLE audit_tenantevent RENAME TO gone")
    assert api.get("/authmgr/roles").status_code == 403
    with in_tenant(own.id), connections["tenant"].cursor() as cursor:
        cursor.execute("ALTER TABLE gone RENAME TO audit_tenantevent")
    a_minute_passes(valkey)
    assert api.get("/authmgr/roles").status_code == 403
    assert [event["count"] for event in events_of(own, staff.id)] == [2]


# These end or change the session that the test uses.
NOT_WALKED = ("/authmgr/logout", "/authmgr/sessions", "/authmgr/token")


def test_every_operation_of_the_document_audits_its_403(tenant: TestTenant) -> None:
    person = tenant.register()
    api = tenant.as_user(person)
    rejected = set()
    for path, operations in document()["paths"].items():
        for method in operations:
            if path.startswith(NOT_WALKED):
                continue
            filled = path.replace("{tenant_id}", str(tenant.id))
            while "{" in filled:
                filled = f"{filled[: filled.index('{')]}{uuid4()}{filled[filled.index('}') + 1 :]}"
            body = None if method == "get" else {}
            if api.call(method, filled, body).status_code == 403:
                rejected.add((method.upper(), path.count("/"), path.split("{")[0].strip("/")))
    assert len(rejected) > 40
    assert {path.split("/")[0] for _, _, path in rejected} >= {"exsvc", "uflow", "authmgr", "clientms", "webauthn"}
    seen = {
        (event["method"], event["route"].count("/") + 1, event["route"].split("<")[0].strip("/"))
        for event in events_of(tenant, person.id)
    }
    assert rejected <= seen


def test_console_pages_audit_rejections(tenant: TestTenant) -> None:
    admin, operator = new_tenant_admin(tenant, "sessions:read").sign_in(), new_operator("tenants:read").sign_in()
    for path in ("/admin/userflow/endusersession/", "/admin/userflow/enduser/", "/admin/userflow/client/add/"):
        assert admin.get(path).status_code == 403
    found = events_of(tenant, admin.id)
    assert len({event["route"] for event in found}) == 3
    assert {(event["method"], event["reason"]) for event in found} == {("GET", "PermissionDenied")}
    assert operator.get("/admin/userflow/client/add/").status_code == 403
    assert len(events_of(None, operator.id)) == 1


def test_console_forms_audit_rejections_of_actions(tenant: TestTenant) -> None:
    staff = new_tenant_admin(tenant, "admins:write", "admins:read").sign_in()
    response = staff.post(f"/admin/userflow/adminuser/{tenant.admin.id}/deactivate/")
    assert response.status_code == 400, response.content.decode()
    assert [event["reason"] for event in events_of(tenant, staff.id)] == ["GrantsMoreThanHeld"]


def test_console_audits_redirect_to_reauthentication(tenant: TestTenant) -> None:
    staff = new_tenant_admin(tenant).sign_in()
    staff.time_passes(20)
    response = staff.get("/admin/userflow/client/add/web/")
    assert "/admin/reauthenticate/" in response.headers["Location"]
    assert [event["reason"] for event in events_of(tenant, staff.id)] == ["InsufficientAuthentication"]

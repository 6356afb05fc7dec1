"""Tenants over the API, for operators."""

import secrets
from collections.abc import Callable
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command

from identity_platform.audit.models import PlatformEvent
from tests.world import Api, TestTenant

TENANTS = "/uflow/admin/tenants"


def a_slug() -> str:
    return f"rest-{secrets.token_hex(4)}"


def make(operator: Api, **members: Any) -> dict[str, Any]:
    response = operator.post(TENANTS, {"name": "Made Over HTTP", "slug": a_slug(), **members})
    assert response.status_code == 201, response.content
    return dict(response.json())


def test_create_returns_a_ready_tenant(operator: Api) -> None:
    slug = a_slug()
    made = make(operator, slug=slug, settings={"issuer_name": "Acme"})
    assert set(made) == {
        "tenant_id", "name", "slug", "status", "settings", "client_id", "database", "created_at"
    }  # fmt: skip
    assert (made["slug"], made["status"], made["settings"]) == (slug, "active", {"issuer_name": "Acme"})
    assert made["database"]["status"] == "active"
    assert set(made["database"]) == {"host", "name", "status"}
    assert operator.get(f"{TENANTS}/{made['tenant_id']}").json() == made


def test_new_tenant_accepts_registrations(operator: Api) -> None:
    made = make(operator)
    body = {
        "tenant_id": made["tenant_id"],
        "client_id": made["client_id"],
        "email": "first@example.com",
        "password": "correct horse 9 battery",
        "name": "First One",
    }
    assert Api().post("/uflow/user/clients/register", body).status_code == 201


def test_list_is_newest_first(operator: Api) -> None:
    older, newer = make(operator), make(operator)
    listed = operator.get(TENANTS, {"limit": "2"}).json()
    assert [tenant["tenant_id"] for tenant in listed["tenants"]] == [newer["tenant_id"], older["tenant_id"]]
    assert (listed["page"], listed["limit"]) == (1, 2)
    assert listed["total"] >= 2


def test_list_filters_by_name_slug_and_status(operator: Api) -> None:
    mark = secrets.token_hex(4)
    acme, umbrella = make(operator, name=f"Acme {mark} 50%"), make(operator, name=f"Umbrella {mark}")
    operator.patch(f"{TENANTS}/{umbrella['tenant_id']}", {"status": "suspended"})

    def found(**query: str) -> list[str]:
        page = operator.get(TENANTS, query).json()
        assert page["total"] == len(page["tenants"])
        return [tenant["tenant_id"] for tenant in page["tenants"]]

    assert found(name=mark.upper()) == [umbrella["tenant_id"], acme["tenant_id"]]
    assert found(name=f"{mark} 50%") == found(slug=acme["slug"].upper()) == [acme["tenant_id"]]
    assert found(name=mark, status="Suspended") == [umbrella["tenant_id"]]
    assert found(slug=acme["slug"][:-1]) == found(slug="%") == found(name=mark, slug="none") == []
    assert operator.get(TENANTS, {"status": "asleep"}).status_code == 400


def test_tenant_admin_cannot_read_tenants(tenant: TestTenant, other_tenant: TestTenant) -> None:
    assert tenant.api.get(TENANTS, {"slug": other_tenant.slug}).status_code == 403


def test_page_past_the_end_is_empty_with_total(operator: Api) -> None:
    make(operator)
    listed = operator.get(TENANTS, {"page": "100000", "limit": "1000"}).json()
    assert (listed["tenants"], listed["limit"]) == ([], 100)
    assert listed["total"] >= 1


@pytest.mark.parametrize("slug", ["Upper", "-dash", "dash-", "spa ce", "ü", "x" * 51, ""])
def test_malformed_slug_is_rejected(slug: str, operator: Api) -> None:
    response = operator.post(TENANTS, {"name": "Odd Slug", "slug": slug})
    assert response.status_code == 400
    assert "slug" in response.json()["details"]


def test_reserved_slug_is_rejected(operator: Api) -> None:
    made = make(operator)
    for slug in ("platform", made["tenant_id"]):
        named = operator.post(TENANTS, {"name": "Odd Slug", "slug": slug})
        renamed = operator.patch(f"{TENANTS}/{made['tenant_id']}", {"slug": slug})
        assert [(response.status_code, list(response.json()["details"])) for response in (named, renamed)] == [
            (400, ["slug"])
        ] * 2
    by_name = operator.post(TENANTS, {"name": "Platform"})
    assert (by_name.status_code, by_name.json()["slug"].startswith("platform-")) == (201, True)
    # `export_audit --platform` means the platform's audit log.
    call_command("export_audit", "--platform", "--to", "2020-01-01", stdout=StringIO(), stderr=StringIO())


def test_taken_slug_is_409(operator: Api) -> None:
    made = make(operator)
    assert operator.post(TENANTS, {"name": "Second", "slug": made["slug"]}).status_code == 409
    other = make(operator)
    changes = {"slug": made["slug"], "confirm": other["slug"]}
    assert operator.patch(f"{TENANTS}/{other['tenant_id']}", changes).status_code == 409


def test_update_merges_settings_and_null_restores(operator: Api) -> None:
    made = make(operator, settings={"issuer_name": "Acme", "mfa_policy": "required"})
    path = f"{TENANTS}/{made['tenant_id']}"
    changed = operator.patch(path, {"settings": {"issuer_name": None, "password_min_length": 12}}).json()
    assert changed["settings"] == {"mfa_policy": "required", "password_min_length": 12}
    assert operator.get(path).json() == changed


@pytest.mark.parametrize("wrong", [{"no_such_setting": 1}, {"password_min_length": "12"}, {"mfa_policy": "sometimes"}])
def test_invalid_settings_change_nothing(wrong: dict[str, Any], operator: Api) -> None:
    made = make(operator, settings={"issuer_name": "Acme"})
    path = f"{TENANTS}/{made['tenant_id']}"
    response = operator.patch(path, {"name": "Changed", "settings": wrong})
    assert response.status_code == 400
    assert list(response.json()["details"]) == [f"settings.{next(iter(wrong))}"]
    assert operator.get(path).json() == made


def test_blank_name_is_rejected(operator: Api) -> None:
    response = operator.post(TENANTS, {"name": "  "})
    assert response.status_code == 400
    assert list(response.json()["details"]) == ["name"]


def test_update_changes_only_the_name(operator: Api) -> None:
    made = make(operator)
    changed = operator.patch(f"{TENANTS}/{made['tenant_id']}", {"name": "New Name", "tenant_id": str(uuid4())}).json()
    assert changed == {**made, "name": "New Name"}


@pytest.mark.parametrize("status", ["deleted", "failed", "migrating", "provisioning", "nonsense", ""])
def test_update_rejects_other_states(status: str, operator: Api) -> None:
    made = make(operator)
    assert operator.patch(f"{TENANTS}/{made['tenant_id']}", {"status": status}).status_code == 400
    assert operator.get(f"{TENANTS}/{made['tenant_id']}").json()["status"] == "active"


def test_update_accepts_current_state(operator: Api) -> None:
    path = f"{TENANTS}/{make(operator)['tenant_id']}"
    for status in ("active", "suspended", "suspended", "active"):
        response = operator.patch(path, {"status": status})
        assert (response.status_code, response.json()["status"]) == (200, status)


def test_reason_of_suspension_is_audited(operator: Api) -> None:
    made = make(operator)
    path = f"{TENANTS}/{made['tenant_id']}"
    assert operator.patch(path, {"reason": "Contract ended"}).json()["details"].keys() == {"reason"}
    assert operator.patch(path, {"status": "suspended", "reason": "Contract ended"}).status_code == 200
    event = PlatformEvent.objects.get(action="tenant.suspended", tenant_id=made["tenant_id"])
    assert event.details == {"reason": "Contract ended"}


def test_reason_for_a_suspended_tenant_is_audited(operator: Api) -> None:
    made = make(operator)
    path = f"{TENANTS}/{made['tenant_id']}"
    assert operator.patch(path, {"status": "suspended"}).status_code == 200
    assert operator.patch(path, {"status": "suspended", "reason": "Unpaid"}).status_code == 200
    assert operator.patch(path, {"status": "suspended"}).status_code == 200
    events = PlatformEvent.objects.filter(action="tenant.suspended", tenant_id=made["tenant_id"]).order_by("pk")
    assert [event.details for event in events] == [{}, {"reason": "Unpaid"}]


def test_delete_requires_the_slug(operator: Api) -> None:
    made = make(operator)
    path = f"{TENANTS}/{made['tenant_id']}"
    for body in ({}, {"confirm": "something-else"}, {"confirm": made["tenant_id"]}):
        assert operator.delete(path, body).status_code == 400
    assert operator.get(path).status_code == 200
    gone = operator.delete(path, {"confirm": made["slug"]})
    assert (gone.status_code, gone.json()["tenant_id"]) == (200, made["tenant_id"])
    assert "message" in gone.json()


def test_deleted_tenant_is_404(operator: Api) -> None:
    made = make(operator)
    path = f"{TENANTS}/{made['tenant_id']}"
    operator.delete(path, {"confirm": made["slug"]})
    assert operator.get(path).status_code == 404
    assert operator.patch(path, {"name": "Back"}).status_code == 404
    assert operator.delete(path, {"confirm": made["slug"]}).status_code == 404
    listed = operator.get(TENANTS, {"limit": "100"}).json()["tenants"]
    assert made["tenant_id"] not in [tenant["tenant_id"] for tenant in listed]
    assert operator.get("/uflow/user/enduser/list", {"tenant_id": made["tenant_id"]}).status_code == 404


@pytest.mark.parametrize("tenant_id", ["0e9d5b0c-9a3f-4c55-8d3b-3b1f5f0f7a11", "1", "not-a-uuid", "0" * 32])
def test_unknown_id_is_404(tenant_id: str, operator: Api) -> None:
    path = f"{TENANTS}/{tenant_id}"
    assert operator.get(path).status_code == 404
    assert operator.patch(path, {"name": "No Tenant"}).status_code == 404
    assert operator.delete(path, {"confirm": "wrong-slug"}).status_code == 404


def test_tenants_require_an_operator(tenant: TestTenant, other_tenant: TestTenant, operator: Api) -> None:
    user = tenant.as_user(tenant.register())
    for api, error in ((Api(), 401), (tenant.api, 403), (user, 403)):
        assert api.get(TENANTS).status_code == error
        assert api.post(TENANTS, {"name": "Mine"}).status_code == error
        for each in (tenant, other_tenant):
            path = f"{TENANTS}/{each.id}"
            assert api.get(path).status_code == error
            assert api.patch(path, {"status": "suspended"}).status_code == error
            assert api.delete(path, {"confirm": tenant.slug}).status_code == error
    assert operator.get(f"{TENANTS}/{tenant.id}").json()["status"] == "active"


def test_changes_are_in_the_platforms_audit_log(operator: Api) -> None:
    from identity_platform.audit.models import PlatformEvent

    made = make(operator)
    path = f"{TENANTS}/{made['tenant_id']}"
    operator.patch(path, {"name": "Renamed"})
    operator.patch(path, {"status": "suspended"})
    operator.delete(path, {"confirm": made["slug"]})
    events = PlatformEvent.objects.filter(tenant_id=made["tenant_id"]).order_by("id")
    done = [event for event in events if event.action.startswith("tenant.")]
    assert [event.action for event in done] == [
        "tenant.created",
        "tenant.updated",
        "tenant.suspended",
        "tenant.deleted",
    ]
    assert {event.actor_kind for event in done} == {"operator"}
    assert all("Renamed" not in str(event.details) for event in done)


def test_concurrent_settings_changes_are_both_kept(operator: Api) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from django.db import connections

    path = f"{TENANTS}/{make(operator)['tenant_id']}"
    wanted = {"issuer_name": "Acme", "password_min_length": 12, "mfa_policy": "required", "self_registration": False}

    def change(name: str) -> int:
        try:
            return int(operator.patch(path, {"settings": {name: wanted[name]}}).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(wanted)) as pool:
        assert set(pool.map(change, wanted)) == {200}
    assert operator.get(path).json()["settings"] == wanted


def test_admin_of_deleted_tenant_is_rejected(operator: Api, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    operator.delete(f"{TENANTS}/{tenant.id}", {"confirm": tenant.slug})
    assert tenant.api.get("/uflow/admin/users/me").status_code == 401
    body = {"username": tenant.admin.username, "password": tenant.admin.password}
    assert Api().post("/uflow/admin/auth/login", body).status_code == 401


def test_settings_that_block_all_registrations_are_rejected(operator: Api, new_tenant: Any) -> None:
    tenant = new_tenant()
    path = f"/uflow/admin/tenants/{tenant.id}"
    assert operator.patch(path, {"settings": {"mfa_policy": "required"}}).status_code == 200
    response = operator.patch(path, {"settings": {"enrollment_mode": "bearer"}})
    assert response.status_code == 400
    assert "settings.enrollment_mode" in response.json()["details"]

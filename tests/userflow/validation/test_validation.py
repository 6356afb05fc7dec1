"""Validation reads current permissions from the database, never from claims."""

from typing import Any
from uuid import uuid4

import pytest

from tests.userflow.sessions.clients import make_client, own_token
from tests.world import Api, TestTenant, User, capture_statements
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION, TENANT_PERMISSIONS

PATH = "/authmgr/validate"


def with_role(tenant: TestTenant, *permissions: str) -> tuple[User, str]:
    """Return a user with a role of these permissions, and the id of the role."""
    person = tenant.register()
    body = {"name": f"role-{uuid4().hex[:8]}", "permissions": list(permissions)}
    role = tenant.api.post("/authmgr/roles", body).json()["id"]
    bound = tenant.api.post(f"/authmgr/roles/{role}/bindings", {"user_ids": [str(person.id)]})
    assert bound.status_code in (200, 201), bound.content
    return person, role


def test_validate_admin_token(tenant: TestTenant) -> None:
    response = tenant.api.get(PATH)
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    known = response.json()
    assert (known["sub"], known["kind"], known["tenant_id"]) == (str(tenant.admin.id), "admin", str(tenant.id))
    assert (known["client_id"], known["roles"], known["groups"]) == (None, ["tenant-admin"], [])
    assert known["permissions"] == known["scopes"] == sorted(TENANT_PERMISSIONS)
    assert known["expires_at"].endswith("Z")
    assert known["message"]


def test_validate_operator_token(operator: Api) -> None:
    known = operator.get(PATH).json()
    assert (known["kind"], known["tenant_id"]) == ("operator", None)
    assert known["permissions"] == sorted(EVERY_PERMISSION)


def test_validate_end_user_follows_roles_and_groups(tenant: TestTenant) -> None:
    person, role = with_role(tenant, "invoices:read")
    api = tenant.as_user(person)
    assert "invoices:read" in api.get(PATH).json()["permissions"]
    name = f"group-{uuid4().hex[:8]}"
    group = tenant.api.post("/authmgr/groups", {"name": name, "roles": []}).json()["id"]
    tenant.api.post(f"/authmgr/groups/{group}/users", {"user_ids": [str(person.id)]})
    assert api.get(PATH).json()["groups"] == [name]
    tenant.api.delete(f"/authmgr/groups/{group}/users", {"user_ids": [str(person.id)]})
    tenant.api.delete(f"/authmgr/roles/{role}/bindings", {"user_ids": [str(person.id)]})
    known = api.get(PATH).json()
    assert known["groups"] == []
    assert "invoices:read" not in known["permissions"]


def test_validate_client_token(tenant: TestTenant) -> None:
    client = make_client(tenant, scopes=["services:read"])
    known = Api(token=own_token(client)).get(PATH).json()
    assert (known["sub"], known["client_id"], known["kind"]) == (client["id"], client["id"], "client")
    assert (known["scopes"], known["roles"], known["groups"]) == (["services:read"], [], [])


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", PATH, None),
        ("GET", f"{PATH}/scope?scope=services:read", None),
        ("GET", f"{PATH}/resource?resource=services", None),
        ("POST", f"{PATH}/permissions", {"permissions": ["services:read"]}),
    ],
)
def test_validate_requires_a_valid_token(api: Api, method: str, path: str, body: Any) -> None:
    for token in (None, "x"):
        response = Api(token=token).call(method, path, body)
        assert (response.status_code, response.json()["error"]) == (401, "Unauthorized")


def test_scope_reports_held_and_missing(tenant: TestTenant) -> None:
    person, _ = with_role(tenant, "invoices:read", "invoices:pay")
    api = tenant.as_user(person)
    one = api.get(f"{PATH}/scope", {"scope": "invoices:read"})
    assert (one.status_code, one.json()["required"]) == (200, ["invoices:read"])
    assert {"invoices:read", "invoices:pay"} <= set(one.json()["held"])
    assert api.get(f"{PATH}/scope", {"scope": "invoices:read invoices:pay"}).status_code == 200
    rejected = api.get(f"{PATH}/scope", {"scope": "invoices:read invoices:void"})
    assert (rejected.status_code, rejected.json()["error"]) == (403, "Forbidden")
    assert rejected.json()["details"]["missing"] == ["invoices:void"]


def test_resource_accepts_any_or_one_action(tenant: TestTenant) -> None:
    person, _ = with_role(tenant, "invoices:read", "invoices:pay", "invoicesx:read")
    api = tenant.as_user(person)
    whole = api.get(f"{PATH}/resource", {"resource": "invoices"})
    assert whole.status_code == 200
    assert (whole.json()["resource"], whole.json()["actions"]) == ("invoices", ["pay", "read"])
    assert api.get(f"{PATH}/resource", {"resource": "invoices:pay"}).status_code == 200
    for missing in ("invoices:void", "invoice", "services", "services:read", ":", "*", "%"):
        assert api.get(f"{PATH}/resource", {"resource": missing}).status_code == 403


def test_permissions_mode_all_or_any(tenant: TestTenant) -> None:
    person, _ = with_role(tenant, "invoices:read")
    api = tenant.as_user(person)

    def ask(*permissions: str, **how: str) -> Any:
        return api.post(f"{PATH}/permissions", {"permissions": list(permissions), **how})

    both = ("invoices:read", "invoices:void")
    assert ask("invoices:read").json()["mode"] == "all"
    assert (ask(*both).status_code, ask(*both, mode="all").status_code) == (403, 403)
    assert (ask(*both, mode="any").status_code, ask("invoices:void", mode="any").status_code) == (200, 403)
    assert ask(*both).json()["details"] == {
        "required": list(both),
        "missing": ["invoices:void"],
        "held": ask("invoices:read").json()["held"],
    }


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"permissions": []},
        {"permissions": "services:read"},
        {"permissions": {"0": "services:read"}},
        {"permissions": [7]},
        {"permissions": [""]},
        {"permissions": ["a"] * 101},
        {"permissions": ["services:read"], "mode": "some"},
    ],
)
def test_invalid_body_is_named(tenant: TestTenant, body: dict[str, Any]) -> None:
    response = tenant.api.post(f"{PATH}/permissions", body)
    assert response.status_code == 400
    assert response.json()["details"]


@pytest.mark.parametrize("path", ["scope", "scope?scope=", "scope?scope=%20", "resource", "resource?resource="])
def test_missing_parameter_is_400(tenant: TestTenant, path: str) -> None:
    assert tenant.api.get(f"{PATH}/{path}").status_code == 400


@pytest.mark.quiet_machine
def test_validation_needs_no_extra_statement(tenant: TestTenant) -> None:
    api = tenant.as_user(tenant.register())
    with capture_statements() as whole:
        api.get(PATH)
    with capture_statements() as scope:
        # A permission that the user holds, because a rejected call writes an audit event.
        assert api.get(f"{PATH}/scope", {"scope": "profile:read"}).status_code == 200
    with capture_statements() as admin:
        tenant.api.get(PATH)
    assert (whole.counts, scope.counts, admin.counts) == ((0, 1), (0, 1), (1, 0))

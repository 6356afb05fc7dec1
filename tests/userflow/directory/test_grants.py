"""Callers who change a directory's target or run it must hold all that it may grant: its server decides who is in a group."""

import secrets
from collections.abc import Callable
from typing import Any

import pytest

from tests.userflow.directory.conftest import CONFIGS, Directory
from tests.userflow.directory.entra import Entra
from tests.world import Api, TestTenant


def program(tenant: TestTenant, *scopes: str) -> Api:
    """An application of the tenant with exactly these permissions."""
    client = {"name": f"App {secrets.token_hex(4)}", "type": "confidential", "scopes": list(scopes)}
    made = tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", client).json()
    proof = {name: made[name] for name in ("client_id", "client_secret")}
    grant = {"grant_type": "client_credentials", "scope": " ".join(scopes), **proof}
    return Api(token=Api().post("/authmgr/token", grant).json()["access_token"])


def strong_role(tenant: TestTenant) -> str:
    """The name of a role, and of a group with it, that grants more than directories need."""
    name = f"strong-{secrets.token_hex(4)}"
    assert tenant.api.post("/authmgr/roles", {"name": name, "permissions": ["services:credentials"]}).status_code == 201
    assert tenant.api.post("/authmgr/groups", {"name": name, "roles": [name]}).status_code == 201
    return name


SCOPES = ("directory:read", "directory:write", "directory:sync")
CHANGES: list[dict[str, Any]] = [
    {"application_id": "another", "secret": "its own"},
    {"secret": "another"},
    {"mapping": {"email": "otherMail"}},
    {"user_filter": "(a=b)"},
]


@pytest.mark.parametrize("change", CHANGES, ids=["target", "secret", "mapping", "filter"])
def test_retarget_requires_permissions_of_mapped_groups(
    new_tenant: Callable[[], TestTenant], configured: Callable[..., Directory], entra: Entra, change: dict[str, Any]
) -> None:
    tenant = new_tenant()
    directory = configured(tenant, **entra.members(groups={"g": strong_role(tenant)}))
    weak, able = program(tenant, *SCOPES), program(tenant, *SCOPES, "services:credentials")
    refused = weak.put(directory.path, change)
    assert (refused.status_code, "services:credentials" in refused.json()["message"]) == (403, True)
    assert tenant.api.get(directory.path).json() == directory.made
    assert weak.put(directory.path, {"sync_every_minutes": 30}).status_code == 200
    assert able.put(directory.path, change).status_code == 200


def test_sync_requires_permissions_of_mapped_groups(
    new_tenant: Callable[[], TestTenant], configured: Callable[..., Directory], entra: Entra
) -> None:
    tenant = new_tenant()
    directory = configured(tenant, **entra.members(groups={"g": strong_role(tenant)}))
    weak = program(tenant, *SCOPES)
    assert weak.post(f"{directory.path}/sync", {}).status_code == 403
    assert tenant.api.get(directory.path).json()["last_run"]["state"] == "failed"
    assert weak.post(f"{directory.path}/test").status_code == 200
    assert program(tenant, *SCOPES, "services:credentials").post(f"{directory.path}/sync", {}).status_code != 403


def test_retarget_requires_permissions_of_linked_users(
    new_tenant: Callable[[], TestTenant], configured: Callable[..., Directory], entra: Entra
) -> None:
    tenant = new_tenant()
    directory = configured(tenant, **entra.members())
    entra.add(directory.mail("boss"))
    assert directory.sync()["users_created"] == 1
    weak, elsewhere = program(tenant, *SCOPES), {"application_id": "another", "secret": "its own"}
    assert weak.post(f"{directory.path}/sync", {}).status_code == 200
    role = tenant.api.post("/authmgr/roles", {"name": "strong", "permissions": ["services:credentials"]}).json()
    bound = tenant.api.post(f"/authmgr/roles/{role['id']}/bindings", {"user_ids": [directory.users()[0]["id"]]})
    assert bound.json()["changed"] == 1
    assert weak.put(directory.path, elsewhere).status_code == 403
    assert weak.post(f"{directory.path}/sync", {}).status_code == 403
    # Nor through a new directory, which would take over the users of the deleted one.
    assert weak.delete(directory.path).status_code == 403
    assert tenant.api.delete(directory.path).status_code == 200
    assert weak.post(CONFIGS, {"name": "Mine", **entra.members()}).status_code == 403
    assert tenant.api.post(CONFIGS, {"name": "Ours", **entra.members()}).status_code == 201

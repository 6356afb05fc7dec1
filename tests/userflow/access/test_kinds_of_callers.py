"""Calls need a permission and a kind of caller; the error says which of the two is missing."""

import secrets

from tests.world import TestTenant


def test_wrong_kind_of_caller_gets_a_clear_message(tenant: TestTenant) -> None:
    person = tenant.register()
    role = {"name": f"desk-{secrets.token_hex(4)}", "permissions": ["groups:read"]}
    made = tenant.api.post("/authmgr/roles", role).json()
    tenant.api.post(f"/authmgr/roles/{made['id']}/bindings", {"user_ids": [str(person.id)]})
    responses = [tenant.as_user(one).get("/authmgr/groups") for one in (person, tenant.register())]
    assert [response.status_code for response in responses] == [403, 403]
    assert "end_user" in responses[0].json()["message"]
    assert "needs the permission groups:read" in responses[1].json()["message"]

"""What the OAuth endpoints say about a suspended tenant, and to whom."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.copies import change_mapping
from tests.userflow.sessions.clients import basic, form, make_client
from tests.world import Api, TestTenant, sign_in_admin

TOKEN = "/authmgr/token"


def set_state(tenant: TestTenant, state: str) -> None:
    change_mapping(tenant.id, status=state)


def by_client(client: dict[str, Any], secret: str | None = None) -> Any:
    return Api().post(TOKEN, **form(grant_type="client_credentials"), headers=basic(client, secret))


def by_refresh(token: str, **members: str) -> Any:
    return Api().post(TOKEN, **form(grant_type="refresh_token", refresh_token=token, **members))


def told(response: Any) -> tuple[int, str, bool]:
    """The status, the error code, and whether the suspension is told, to people and to programs."""
    body = response.json()
    is_told = "suspended" in body.get("error_description", "")
    assert body.get("code") == ("tenant_suspended" if is_told else None)
    return response.status_code, body.get("error", ""), is_told


def test_client_credentials_of_a_suspended_tenant(
    new_tenant: Callable[[], TestTenant], other_tenant: TestTenant
) -> None:
    tenant = new_tenant()
    client, other = make_client(tenant), make_client(other_tenant)
    set_state(tenant, "suspended")
    assert told(by_client(client)) == (400, "unauthorized_client", True)
    assert told(by_client(client, "wrong")) == (401, "invalid_client", False)
    assert told(by_client(client, other["client_secret"])) == (401, "invalid_client", False)
    public = Api().post(TOKEN, **form(grant_type="client_credentials", client_id=str(tenant.client_id)))
    assert told(public) == (400, "unauthorized_client", False)
    assert by_client(other).status_code == 200


def test_refresh_in_a_suspended_tenant(new_tenant: Callable[[], TestTenant], other_tenant: TestTenant) -> None:
    tenant = new_tenant()
    used = tenant.sign_in(tenant.register())["refresh_token"]
    token = by_refresh(used).json()["refresh_token"]
    admin = sign_in_admin(tenant.admin.username)["refresh_token"]
    other = other_tenant.sign_in(other_tenant.register())["refresh_token"]
    set_state(tenant, "suspended")
    for valid in (token, admin):
        assert told(by_refresh(valid)) == (400, "invalid_grant", True)
    # Who holds no valid token does not learn that the tenant is suspended.
    assert told(by_refresh(used)) == (400, "invalid_grant", False)
    assert told(by_refresh("nonsense", client_id=str(tenant.client_id))) == (400, "invalid_grant", False)
    assert told(by_refresh(other, client_id=str(tenant.client_id))) == (400, "invalid_grant", False)
    assert by_refresh(other).status_code == 200
    set_state(tenant, "active")
    assert by_refresh(token).status_code == 200


def test_revoke_and_introspect_in_a_suspended_tenant(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    client, tokens = make_client(tenant), tenant.sign_in(tenant.register())
    own = by_client(client).json()["access_token"]
    set_state(tenant, "suspended")
    public = {"client_id": str(tenant.client_id)}
    revoke, introspect = f"{TOKEN}/revoke", f"{TOKEN}/introspect"
    unknown = Api().post(revoke, **form(token="nonsense", **public))
    assert (unknown.status_code, unknown.json()) == (200, {})
    assert told(Api().post(revoke, **form(token=tokens["refresh_token"], **public))) == (
        400,
        "unauthorized_client",
        True,
    )
    assert told(Api().post(revoke, **form(token=own), headers=basic(client))) == (400, "unauthorized_client", True)
    for token in (own, tokens["access_token"]):
        seen = Api().post(introspect, **form(token=token), headers=basic(client))
        assert (seen.status_code, seen.json()) == (200, {"active": False})
    wrong = Api().post(introspect, **form(token=own), headers=basic(client, "wrong"))
    assert told(wrong) == (401, "invalid_client", False)


@pytest.mark.parametrize(
    ("state", "by_secret", "by_token"),
    [
        ("failed", (503, "temporarily_unavailable"), (503, "temporarily_unavailable")),
        ("provisioning", (503, "temporarily_unavailable"), (503, "temporarily_unavailable")),
        ("moving", (503, "temporarily_unavailable"), (503, "temporarily_unavailable")),
        ("migrating", (503, "temporarily_unavailable"), (503, "temporarily_unavailable")),
        ("deleting", (401, "invalid_client"), (401, "invalid_client")),
        ("deleted", (401, "invalid_client"), (401, "invalid_client")),
    ],
)
def test_tokens_in_other_states(
    new_tenant: Callable[[], TestTenant], state: str, by_secret: tuple[int, str], by_token: tuple[int, str]
) -> None:
    tenant = new_tenant()
    client, token = make_client(tenant), tenant.sign_in(tenant.register())["refresh_token"]
    set_state(tenant, state)
    responses = [by_client(client), by_refresh(token, client_id=str(tenant.client_id))]
    assert [told(response) for response in responses] == [(*by_secret, False), (*by_token, False)]
    assert all("Retry-After" in response.headers for response in responses if response.status_code == 503)
    # Without a database the client cannot be read.
    wrong = by_secret if state in ("failed", "provisioning") else (401, "invalid_client")
    assert told(by_client(client, "wrong")) == (*wrong, False)

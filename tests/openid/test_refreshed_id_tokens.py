"""ID tokens of a refresh: the same claims about the user as at the sign-in, with the values of now."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.openid.devices import Device
from tests.openid.pages.visitor import Visitor
from tests.openid.relying_party import Application, register_application
from tests.openid.test_metadata_claims import application_of, chosen, identity, sets
from tests.userflow.sessions.clients import basic
from tests.world import TestTenant, User, capture_statements
from userflow.accounts.grant_types import DEVICE_CODE, REFRESH_TOKEN

__all__ = ["chosen"]
EVERY_SCOPE = "openid profile email phone groups roles"
# Of each token itself.
OWN = {"iat", "exp", "at_hash", "nonce"}


@pytest.fixture
def user(tenant: TestTenant) -> User:
    return tenant.register()


@pytest.fixture
def app(tenant: TestTenant, user: User) -> Application:
    app = Application(tenant, register_application(tenant, first_party=True))
    app.sign_in(user)
    return app


def refreshed(app: Application, tokens: dict[str, Any], **sent: Any) -> dict[str, Any]:
    response = app.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"], **sent)
    assert response.status_code == 200, response.content
    return dict(response.json())


def about_user(tokens: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in identity(tokens).items() if name not in OWN}


@pytest.mark.parametrize("scope", ["openid", "openid email", "openid profile", EVERY_SCOPE])
def test_refresh_returns_the_claims_of_the_sign_in(app: Application, scope: str) -> None:
    tokens = app.tokens(scope=scope)
    again = refreshed(app, tokens)
    assert about_user(again) == about_user(tokens)
    assert ("email" in about_user(again), "name" in about_user(again)) == ("email" in scope, "profile" in scope)
    assert about_user(refreshed(app, again)) == about_user(tokens)


def test_refresh_returns_claims_requested_by_name(app: Application) -> None:
    tokens = app.tokens(claims='{"id_token": {"email": null}, "userinfo": {"name": null}}')
    again = about_user(refreshed(app, tokens))
    assert again == about_user(tokens)
    assert "email" in again
    assert "name" not in again


def test_refresh_returns_present_values(app: Application, user: User, tenant: TestTenant) -> None:
    group = tenant.api.post("/authmgr/groups", {"name": f"Group of {user.id}"}).json()
    tokens = app.tokens(scope=EVERY_SCOPE)
    assert identity(tokens)["groups"] == []
    tenant.api.put(f"/uflow/user/enduser/{tenant.id}/{user.id}", {"name": "Another Name"})
    tenant.api.post(f"/authmgr/groups/{group['id']}/users", {"user_ids": [str(user.id)]})
    claims = identity(refreshed(app, tokens))
    assert (claims["name"], claims["groups"]) == ("Another Name", [group["name"]])


def test_narrowed_refresh_returns_claims_of_its_scopes(app: Application) -> None:
    tokens = app.tokens(scope=EVERY_SCOPE)
    narrowed = refreshed(app, tokens, scope="openid email")
    assert "email" in identity(narrowed)
    assert not {"name", "groups", "roles"} & identity(narrowed).keys()
    # The session keeps its scopes.
    assert about_user(refreshed(app, narrowed)) == about_user(tokens)


def test_parallel_refresh_returns_the_same_claims(app: Application) -> None:
    tokens = app.tokens(scope="openid email")
    first, second = refreshed(app, tokens), refreshed(app, tokens)
    assert first["refresh_token"] == second["refresh_token"]
    assert about_user(first) == about_user(second) == about_user(tokens)


def test_refresh_returns_mapped_claims(chosen: TestTenant) -> None:
    app = application_of(chosen)
    tokens = app.tokens(scope="openid profile email")
    again = refreshed(app, tokens)
    assert (about_user(again), about_user(again)["department"]) == (about_user(tokens), "Books")
    narrowed = refreshed(app, again, scope="openid email")
    assert "department" not in identity(narrowed)
    # What is mapped later was not asked for; what is not mapped any more is not returned.
    sets(chosen, ["secret"])
    assert not {"secret", "department"} & identity(refreshed(app, narrowed)).keys()


def test_device_gets_the_claims_again(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    sets(own, None, external_id_claim=True)
    visitor, person = Visitor(own), own.register()
    own.api.put(f"/uflow/user/enduser/{own.id}/{person.id}", {"external_id": "crm-7"})
    fields = {"first_party": True, "grant_types": [DEVICE_CODE, REFRESH_TOKEN]}
    device = Device(own, register_application(own, **fields))
    device.starts(scope="openid profile email")
    visitor.signs_in(person)
    device.approved_by(visitor)
    tokens = device.polls().json()
    again = device.post("token", grant_type=REFRESH_TOKEN, refresh_token=tokens["refresh_token"]).json()
    assert about_user(again) == about_user(tokens)
    assert about_user(again)["external_id"] == "crm-7"


def test_claims_cost_no_statement(app: Application) -> None:
    counts = []
    for scope in ("openid", "openid profile email groups roles"):
        tokens = app.tokens(scope=scope)
        with capture_statements() as statements:
            refreshed(app, tokens)
        counts.append(statements.counts)
    assert counts[0] == counts[1] == (0, 3)


def test_confidential_client_gets_the_claims_again(tenant: TestTenant, user: User) -> None:
    app = Application(tenant, register_application(tenant, type="confidential", first_party=True))
    app.sign_in(user)
    tokens = app.exchange(app.code(scope="openid email"), headers=basic(app.client)).json()
    assert about_user(refreshed(app, tokens, headers=basic(app.client))) == about_user(tokens)

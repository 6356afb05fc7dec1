"""Which clients get a new refresh token at each refresh, and for how long the one before still counts."""

from typing import Any

import pytest
from django.test.utils import override_settings

from tenants.entering.context import in_tenant
from tests.copies import change_client
from tests.openid.dpop_keys import DpopKey
from tests.openid.relying_party import CALLBACK, Application, register_application
from tests.openid.test_client_assertions import TYPE, key_client
from tests.parallel import run_concurrently
from tests.userflow.clients.keys import assertion, new_key, public_jwk
from tests.userflow.clients.test_assertions import issuer
from tests.userflow.clients.test_clients import path
from tests.userflow.sessions.clients import FORM, basic
from tests.world import Api, TestTenant, capture_statements
from userflow.accounts.session_models import EndUserRefreshToken


def signed_in(tenant: TestTenant, **fields: Any) -> Application:
    """An application with a browser that is signed in."""
    app = Application(tenant, register_application(tenant, first_party=True, **fields))
    app.sign_in(tenant.register())
    return app


def refreshed(app: Application, refresh_token: str, headers: dict[str, str] | None = None, **sent: Any) -> Any:
    return app.token(headers=headers, grant_type="refresh_token", refresh_token=refresh_token, **sent)


def stored_tokens(tenant: TestTenant) -> int:
    with in_tenant(tenant.id):
        return EndUserRefreshToken.objects.count()


def test_secret_rotates_unless_switched_off(tenant: TestTenant) -> None:
    app = signed_in(tenant, type="confidential")
    client, by_secret = path(tenant, app.client["client_id"]), basic(app.client)
    assert tenant.api.get(client).json()["refresh_token_rotation"] is True
    first = app.exchange(app.code(), headers=by_secret).json()["refresh_token"]
    second = refreshed(app, first, by_secret).json()["refresh_token"]
    assert second != first
    changed = tenant.api.patch(client, {"refresh_token_rotation": False})
    assert (changed.status_code, changed.json()["refresh_token_rotation"]) == (200, False)
    before = stored_tokens(tenant)
    responses = [refreshed(app, second, by_secret) for _ in range(3)]
    assert [response.json()["refresh_token"] for response in responses] == [second] * 3
    assert len({response.json()["access_token"] for response in responses}) == 3
    assert stored_tokens(tenant) == before
    # One that was rotated before is as dead as ever: its use ends the session.
    with override_settings(REFRESH_OVERLAP_SECONDS=0):
        assert refreshed(app, first, by_secret).status_code == 400
    assert refreshed(app, second, by_secret).status_code == 400


def test_kept_token_ends_with_its_session(tenant: TestTenant) -> None:
    app = signed_in(tenant, type="confidential", refresh_token_rotation=False)
    by_secret = basic(app.client)
    token = app.exchange(app.code(), headers=by_secret).json()["refresh_token"]
    assert refreshed(app, token, by_secret).status_code == 200
    revoked = Api().post(
        f"/t/{tenant.slug}/revoke", raw=f"token={token}".encode(), headers=by_secret, content_type=FORM
    )
    assert revoked.status_code == 200
    assert refreshed(app, token, by_secret).json()["error"] == "invalid_grant"


def test_parallel_refreshes_keep_the_token(tenant: TestTenant) -> None:
    app = signed_in(tenant, type="confidential", refresh_token_rotation=False)
    by_secret = basic(app.client)
    token = app.exchange(app.code(), headers=by_secret).json()["refresh_token"]
    responses = run_concurrently([lambda: refreshed(app, token, by_secret) for _ in range(6)])
    assert {(response.status_code, response.json()["refresh_token"]) for response in responses} == {(200, token)}


def test_refresh_without_rotation_costs_no_more_statements(tenant: TestTenant) -> None:
    counts = []
    for rotates in (True, False):
        app = signed_in(tenant, type="confidential", refresh_token_rotation=rotates)
        token = app.exchange(app.code(), headers=basic(app.client)).json()["refresh_token"]
        token = refreshed(app, token, basic(app.client)).json()["refresh_token"]
        with capture_statements() as seen:
            assert refreshed(app, token, basic(app.client)).status_code == 200
        counts.append(seen.counts)
    assert counts[0] == counts[1]


def test_public_client_without_dpop_always_rotates(tenant: TestTenant) -> None:
    app = signed_in(tenant)
    client = path(tenant, app.client["client_id"])
    rejected = tenant.api.patch(client, {"refresh_token_rotation": False})
    assert rejected.status_code == 400
    assert "refresh_token_rotation" in rejected.json()["details"]
    # Also one that was stored while it had to prove a key.
    change_client(app.client["client_id"], refresh_token_rotation=False)
    assert tenant.api.get(client).json()["refresh_token_rotation"] is True
    token = app.tokens()["refresh_token"]
    assert refreshed(app, token).json()["refresh_token"] != token


@pytest.mark.parametrize(("stored", "rotates"), [(None, False), (True, True), (False, False)])
def test_public_client_with_dpop_keeps_its_token(tenant: TestTenant, stored: bool | None, rotates: bool) -> None:
    app = signed_in(tenant, dpop_bound_access_tokens=True, refresh_token_rotation=stored)
    key, endpoint = DpopKey(), f"{app.issuer}/token"

    def by_key() -> dict[str, str]:
        return {"DPoP": key.proof("POST", endpoint)}

    own = {"client_id": app.client["client_id"]}
    first = app.exchange(app.code(), headers=by_key(), **own).json()["refresh_token"]
    response = refreshed(app, first, by_key(), **own)
    assert response.status_code == 200, response.content
    assert (response.json()["refresh_token"] != first) is rotates
    # A copy is of no use without the key.
    other = {"DPoP": DpopKey().proof("POST", endpoint)}
    assert refreshed(app, response.json()["refresh_token"], other, **own).json()["error"] == "invalid_grant"


def test_assertion_keeps_the_token_by_default(tenant: TestTenant) -> None:
    key = new_key()
    client = key_client(tenant, public_jwk(key))
    change_client(client["id"], redirect_uris=[CALLBACK], first_party=True, grant_types=[])
    app = Application(tenant, {"client_id": client["id"]})
    app.sign_in(tenant.register())

    def proof() -> dict[str, str]:
        return {"client_assertion_type": TYPE, "client_assertion": assertion(key, client["id"], issuer(tenant))}

    token = app.exchange(app.code(), **proof()).json()["refresh_token"]
    assert refreshed(app, token, **proof()).json()["refresh_token"] == token
    assert tenant.api.get(path(tenant, client["id"])).json()["refresh_token_rotation"] is False
    assert tenant.api.patch(path(tenant, client["id"]), {"refresh_token_rotation": True}).status_code == 200
    assert refreshed(app, token, **proof()).json()["refresh_token"] != token
    # Null is the default of its kind.
    back = tenant.api.patch(path(tenant, client["id"]), {"refresh_token_rotation": None}).json()
    assert back["refresh_token_rotation"] is False


def test_overlap_is_a_setting(tenant: TestTenant) -> None:
    app = signed_in(tenant)
    first = app.tokens()["refresh_token"]
    second = refreshed(app, first).json()["refresh_token"]
    assert refreshed(app, first).json()["refresh_token"] == second
    with override_settings(REFRESH_OVERLAP_SECONDS=0):
        assert refreshed(app, first).json()["error"] == "invalid_grant"
    # Such a use is that of a thief, or its owner's after one.
    assert refreshed(app, second).json()["error"] == "invalid_grant"

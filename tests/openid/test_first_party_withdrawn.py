"""A client that is first-party no longer: what it has without consent ends with the change."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from openid.authorization.consents import grant_consent
from tenants.entering.context import in_tenant
from tests.console.staff import new_tenant_admin
from tests.openid.logout_receiver import LogoutReceiver
from tests.openid.logout_scene import Scene, deliver, listens, scene_of, succeeds
from tests.openid.relying_party import CALLBACK, query_of
from tests.tenants.records import sessions_locked
from tests.userflow.sessions.aged import aged
from tests.world import Api, TestTenant
from userflow.clients.models import PendingClientChange


@pytest.fixture
def receiver() -> Iterator[LogoutReceiver]:
    own = LogoutReceiver()
    yield own
    own.close()


def withdrawn(scene: Scene) -> None:
    succeeds(scene.tenant.api.patch(scene.client_path, {"first_party": False}))


def refreshed(scene: Scene) -> Any:
    return scene.app.token(grant_type="refresh_token", refresh_token=scene.tokens["refresh_token"])


def userinfo(scene: Scene) -> Any:
    return Api(token=scene.tokens["access_token"]).get(f"{scene.app.issuer}/userinfo")


def test_withdrawal_ends_sessions_without_consent(tenant: TestTenant, receiver: LogoutReceiver) -> None:
    scene = scene_of(tenant, receiver)
    assert userinfo(scene).status_code == 200
    withdrawn(scene)
    assert (refreshed(scene).json()["error"], userinfo(scene).status_code) == ("invalid_grant", 401)
    assert scene.child().end_reason == "consent_required"
    assert query_of(scene.app.authorize(prompt="none").headers["Location"])["error"] == "consent_required"
    deliver()
    assert len(receiver.taken) == 1


@pytest.mark.parametrize(("scope", "kept"), [("openid offline_access", True), ("openid", False)])
def test_withdrawal_keeps_what_consent_covers(scope: str, kept: bool, tenant: TestTenant) -> None:
    person, app = tenant.register(), listens(tenant, None)
    app.sign_in(person)
    scene = Scene(tenant, person, app, app.tokens(scope=scope))
    with in_tenant(tenant.id):
        grant_consent(user_id=person.id, client_id=app.client["client_id"], scopes=scope.split(" "))
    withdrawn(scene)
    # A refresh token needs `offline_access` from now on.
    assert (refreshed(scene).status_code == 200) is kept


def test_withdrawal_that_sessions_cannot_follow_applies_later(new_tenant: Callable[[], TestTenant]) -> None:
    scene = scene_of(new_tenant(), None)
    with sessions_locked(scene.tenant):
        withdrawn(scene)
    deliver()
    assert not PendingClientChange.objects.filter(tenant_id=scene.tenant.id).exists()
    assert refreshed(scene).json()["error"] == "invalid_grant"


def test_other_changes_keep_sessions(tenant: TestTenant) -> None:
    scene = scene_of(tenant, None)
    succeeds(scene.tenant.api.patch(scene.client_path, {"name": "Renamed", "first_party": True}))
    assert refreshed(scene).status_code == 200


def test_withdrawal_requires_recent_authentication(tenant: TestTenant) -> None:
    scene = scene_of(tenant, None)
    stale = Api(token=aged(str(tenant.api.token), 16))
    refused = stale.patch(scene.client_path, {"first_party": False})
    assert (refused.status_code, refused.json()["code"]) == (401, "insufficient_user_authentication")
    assert refreshed(scene).status_code == 200


def test_withdrawal_in_the_console_ends_sessions(tenant: TestTenant) -> None:
    scene = scene_of(tenant, None)
    staff = new_tenant_admin(tenant).sign_in()
    body = {
        "form_tenant_id": str(tenant.id),
        "name": "Shop",
        "redirect_uris": CALLBACK,
        "require_pkce": "on",
        "grant_types": ["authorization_code", "refresh_token"],
    }
    page = f"/admin/userflow/client/{scene.client_id}/edit/"
    assert staff.post(page, {**body, "first_party": "on"}).status_code == 302
    assert userinfo(scene).status_code == 200
    assert staff.post(page, body).status_code == 302
    assert (refreshed(scene).json()["error"], userinfo(scene).status_code) == ("invalid_grant", 401)

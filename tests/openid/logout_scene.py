"""A user who is signed in at an application that receives logout tokens, and what ends the session."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.core.management import call_command

from openid.account.applications import disconnect
from tenants.entering.context import in_tenant
from tests.openid.logout_receiver import LogoutReceiver
from tests.openid.relying_party import Application, register_application
from tests.tenants.conftest import run_command
from tests.userflow.sessions.clients import FORM
from tests.userflow.sessions.test_refresh import eleven_seconds_pass
from tests.world import PASSWORD, Api, TestTenant, User
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.sessions.ending import end_sessions


@dataclass
class Scene:
    """A user who is signed in at an application that receives logout tokens."""

    tenant: TestTenant
    person: User
    app: Application
    tokens: dict[str, Any]

    @property
    def client_id(self) -> str:
        return str(self.app.client["client_id"])

    @property
    def client_path(self) -> str:
        return f"/clientms/tenants/{self.tenant.id}/clients/{self.client_id}"

    @property
    def sid(self) -> str:
        with in_tenant(self.tenant.id):
            return str(EndUserSession.objects.get(client_id=self.client_id, user_id=self.person.id).pk)

    def child(self) -> EndUserSession:
        with in_tenant(self.tenant.id):
            return EndUserSession.objects.get(client_id=self.client_id, user_id=self.person.id)

    def revokes(self, token: str) -> Any:
        sent = urlencode({"token": token, "client_id": self.client_id}).encode()
        return Api().post(f"{self.app.issuer}/revoke", raw=sent, content_type=FORM)


def listens(tenant: TestTenant, receiver: LogoutReceiver | None, **fields: Any) -> Application:
    """Return an application of the tenant, with the receiver's address as its logout address."""
    app = Application(tenant, register_application(tenant, first_party=True, **fields))
    if receiver is not None:
        path = f"/clientms/tenants/{tenant.id}/clients/{app.client['client_id']}"
        response = tenant.api.patch(path, {"backchannel_logout_uri": receiver.url})
        assert response.status_code == 200, response.content
    return app


def scene_of(tenant: TestTenant, receiver: LogoutReceiver | None, **fields: Any) -> Scene:
    person, app = tenant.register(), listens(tenant, receiver, **fields)
    app.sign_in(person)
    return Scene(tenant, person, app, app.tokens())


def deliver() -> None:
    """Deliver what is due."""
    call_command("deliver_events", "--once", "--threads", "4")


def succeeds(response: Any) -> None:
    assert response.status_code < 400, response.content


def rp_initiated_logout(scene: Scene) -> None:
    query = urlencode({"id_token_hint": scene.tokens["id_token"]})
    succeeds(scene.app.browser.get(f"{scene.app.issuer}/logout?{query}"))


def end_of_browser_session(scene: Scene) -> None:
    with in_tenant(scene.tenant.id), END_USERS.atomic():
        end_sessions(END_USERS, user_id=scene.person.id, session_id=scene.child().parent_id, reason="signed_out")


def logout_of_the_application(scene: Scene) -> None:
    succeeds(scene.revokes(scene.tokens["refresh_token"]))


def revocation_of_access_token(scene: Scene) -> None:
    succeeds(scene.revokes(scene.tokens["access_token"]))


def sign_out_everywhere(scene: Scene) -> None:
    succeeds(scene.tenant.as_user(scene.person).post("/authmgr/logout", {"all": True}))


def admin_ends_sessions(scene: Scene) -> None:
    succeeds(scene.tenant.api.delete("/authmgr/sessions", query={"user_id": str(scene.person.id)}))


def admin_ends_one_session(scene: Scene) -> None:
    succeeds(scene.tenant.api.delete(f"/authmgr/sessions/{scene.sid}"))


def password_change(scene: Scene) -> None:
    body = {"current_password": PASSWORD, "new_password": f"a new {secrets.token_hex(8)}"}
    succeeds(scene.tenant.as_user(scene.person).post("/authmgr/profile/password", body))


def deactivation(scene: Scene) -> None:
    succeeds(scene.tenant.api.delete(f"/uflow/user/enduser/{scene.tenant.id}/{scene.person.id}"))


def erasure(scene: Scene) -> None:
    scene.tenant.register()  # the last active user cannot be erased
    body = {"tenant_id": str(scene.tenant.id), "user_id": str(scene.person.id)}
    succeeds(scene.tenant.api.post("/uflow/user/enduser/delete_all", body))


def deactivation_of_client(scene: Scene) -> None:
    succeeds(scene.tenant.api.patch(scene.client_path, {"active": False}))


def deletion_of_client(scene: Scene) -> None:
    succeeds(scene.tenant.api.delete(scene.client_path))


def suspension(scene: Scene) -> None:
    run_command("suspend_tenant", scene.tenant.slug)


def short_suspension(scene: Scene) -> None:
    suspension(scene)
    run_command("resume_tenant", scene.tenant.slug)


def reuse_of_refresh_token(scene: Scene) -> None:
    used = {"grant_type": "refresh_token", "refresh_token": scene.tokens["refresh_token"]}
    succeeds(scene.app.token(**used))
    eleven_seconds_pass(scene.tenant)
    assert scene.app.token(**used).status_code == 400


def disconnection(scene: Scene) -> None:
    with in_tenant(scene.tenant.id):
        disconnect(scene.person.id, scene.app.client["client_id"])


CAUSES: dict[str, Callable[[Scene], None]] = {
    cause.__name__: cause
    for cause in (
        rp_initiated_logout,
        end_of_browser_session,
        logout_of_the_application,
        revocation_of_access_token,
        sign_out_everywhere,
        admin_ends_sessions,
        admin_ends_one_session,
        password_change,
        deactivation,
        erasure,
        deactivation_of_client,
        deletion_of_client,
        suspension,
        short_suspension,
        reuse_of_refresh_token,
        disconnection,
    )
}

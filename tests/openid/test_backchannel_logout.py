"""Back-channel logout: every end of an application's session sends it a logout token, exactly where it wants one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jwt
import pytest
from joserfc.errors import InvalidClaimError, InvalidKeyIdError

from tenants.entering.context import in_tenant
from tests.copies import change_client
from tests.openid.logout_receiver import LogoutReceiver, verified
from tests.openid.logout_scene import (
    CAUSES,
    Scene,
    deliver,
    listens,
    logout_of_the_application,
    rp_initiated_logout,
    scene_of,
    sign_out_everywhere,
    succeeds,
)
from tests.openid.relying_party import query_of
from tests.tenants.conftest import run_command
from tests.world import Api, TestTenant, capture_statements
from userflow.accounts.realms import END_USERS
from userflow.events.models import WebhookMessage
from userflow.sessions.ending import end_sessions


@pytest.fixture(autouse=True)
def _receivers_on_this_machine(settings: Any) -> None:
    settings.CLIENT_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    settings.CLIENT_PLAIN_HTTP = True
    settings.WEBHOOK_TIMEOUT_SECONDS = 3


@pytest.fixture
def receiver() -> Iterator[LogoutReceiver]:
    made = LogoutReceiver()
    yield made
    made.close()


@pytest.fixture
def scene(new_tenant: Callable[[], TestTenant], receiver: LogoutReceiver) -> Scene:
    return scene_of(new_tenant(), receiver)


@pytest.mark.parametrize("cause", CAUSES)
def test_every_end_sends_one_logout_token(cause: str, scene: Scene, receiver: LogoutReceiver) -> None:
    sid = scene.sid
    CAUSES[cause](scene)
    deliver()
    (token,) = receiver.taken
    claims = verified(token, scene.tenant, scene.client_id)
    assert (claims["sid"], claims["sub"]) == (sid, str(scene.person.id))
    assert claims["exp"] - claims["iat"] == 120
    deliver()
    assert len(receiver.received) == 1


def test_metadata_announces_backchannel_logout(tenant: TestTenant) -> None:
    for path in ("/t/{}/.well-known/openid-configuration", "/.well-known/oauth-authorization-server/t/{}"):
        document = Api().get(path.format(tenant.slug)).json()
        assert document["backchannel_logout_supported"] is True
        assert document["backchannel_logout_session_supported"] is True


def test_logout_returns_tells_and_ends_the_sign_in(scene: Scene, receiver: LogoutReceiver) -> None:
    back = "https://app.example.com/bye"
    change_client(scene.client_id, post_logout_redirect_uris=[back])
    sid = jwt.decode(scene.tokens["id_token"], options={"verify_signature": False})["sid"]
    query = urlencode({"id_token_hint": scene.tokens["id_token"], "post_logout_redirect_uri": back, "state": "s"})
    response = scene.app.browser.get(f"{scene.app.issuer}/logout?{query}")
    assert (response.status_code, response.headers["Location"]) == (303, f"{back}?state=s")
    deliver()
    assert [verified(token, scene.tenant, scene.client_id)["sid"] for token in receiver.taken] == [sid]
    silent = scene.app.authorize(prompt="none")
    assert query_of(silent.headers["Location"])["error"] == "login_required"


def test_code_reuse_sends_logout_token(scene: Scene, receiver: LogoutReceiver) -> None:
    app = listens(scene.tenant, receiver)
    app.sign_in(scene.person)
    code = app.code()
    succeeds(app.exchange(code))
    assert app.exchange(code).status_code == 400
    deliver()
    (token,) = receiver.taken
    verified(token, scene.tenant, app.client["client_id"])


def test_restore_sends_logout_tokens(scene: Scene, receiver: LogoutReceiver, tmp_path: Path) -> None:
    sid, file = scene.sid, tmp_path / "tenant.backup"
    run_command("backup_tenant", scene.tenant.slug, str(file))
    run_command("restore_tenant", scene.tenant.slug, str(file), yes=True)
    deliver()
    (token,) = receiver.taken
    assert verified(token, scene.tenant, scene.client_id)["sid"] == sid


def test_changed_address_and_factor_send_logout_tokens(scene: Scene, receiver: LogoutReceiver) -> None:
    for reason in ("email_changed", "factor_removed"):
        with in_tenant(scene.tenant.id), END_USERS.atomic():
            end_sessions(END_USERS, user_id=scene.person.id, keep=None, reason=reason)
        scene.app.sign_in(scene.person)
        scene.app.tokens()
    deliver()
    assert len(receiver.taken) == 2


# --- who gets one ----------------------------------------------------------------------------------------------------


def test_every_application_of_the_browser_is_told(
    new_tenant: Callable[[], TestTenant], receiver: LogoutReceiver
) -> None:
    tenant = new_tenant()
    scene = scene_of(tenant, receiver, id_token_signed_response_alg="ES256")
    other = LogoutReceiver()
    second, silent = listens(tenant, other), listens(tenant, None)
    for app in (second, silent):
        app.browser = scene.app.browser
        app.tokens()
    rp_initiated_logout(scene)
    deliver()
    other.close()
    verified(receiver.taken[0], tenant, scene.client_id, "ES256")
    verified(other.taken[0], tenant, second.client["client_id"])
    assert (len(receiver.taken), len(other.taken)) == (1, 1)


def test_tenants_do_not_share_logout_tokens(new_tenant: Callable[[], TestTenant], scene: Scene) -> None:
    foreign_receiver = LogoutReceiver()
    foreign = scene_of(new_tenant(), foreign_receiver)
    rp_initiated_logout(foreign)
    deliver()
    foreign_receiver.close()
    (token,) = foreign_receiver.taken
    verified(token, foreign.tenant, foreign.client_id)
    with pytest.raises(InvalidKeyIdError):
        verified(token, scene.tenant, foreign.client_id)
    with pytest.raises(InvalidClaimError):
        verified(token, foreign.tenant, scene.client_id)


def test_sessions_follow_a_new_logout_address(new_tenant: Callable[[], TestTenant], receiver: LogoutReceiver) -> None:
    scene = scene_of(new_tenant(), None)
    succeeds(scene.tenant.api.patch(scene.client_path, {"backchannel_logout_uri": receiver.url}))
    rp_initiated_logout(scene)
    deliver()
    assert len(receiver.taken) == 1


def test_removed_logout_address_ends_the_tokens(scene: Scene, receiver: LogoutReceiver) -> None:
    scene.app.sign_in(scene.person)
    scene.app.tokens()
    logout_of_the_application(scene)  # waits in the outbox
    succeeds(scene.tenant.api.patch(scene.client_path, {"backchannel_logout_uri": None}))
    sign_out_everywhere(scene)
    deliver()
    assert receiver.received == []
    with in_tenant(scene.tenant.id):
        (message,) = WebhookMessage.objects.filter(endpoint_id=scene.client_id)
    assert (message.status, message.last_error) == ("dead", "no address")


def test_logout_addresses_are_no_webhook_endpoints(scene: Scene) -> None:
    rp_initiated_logout(scene)
    path = "/uflow/webhooks/endpoints"
    assert scene.tenant.api.get(path).json()["endpoints"] == []
    for call in ("get", "delete"):
        assert getattr(scene.tenant.api, call)(f"{path}/{scene.client_id}").status_code == 404


def test_logout_address_costs_two_statements(tenant: TestTenant, scene: Scene) -> None:
    numbers = []
    for each in (scene_of(tenant, None), scene):
        child = each.child()
        with in_tenant(each.tenant.id), END_USERS.atomic(), capture_statements() as seen:
            assert end_sessions(END_USERS, user_id=child.user_id, session_id=child.pk, reason="signed_out") == 1
        numbers.append(seen.counts)
    assert numbers == [(0, 2), (0, 4)]

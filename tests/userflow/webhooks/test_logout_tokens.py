"""Logout tokens reach applications by the outbox of the webhooks: retried, not ordered, and none lost."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db.models import F
from django.utils.timezone import now

from tenants.entering import lookup
from tenants.entering.context import in_tenant
from tenants.models import TenantDatabase, WebhookTenant
from tenants.states import State
from tests.openid.logout_receiver import LogoutReceiver, verified
from tests.openid.logout_scene import (
    Scene,
    deactivation_of_client,
    deletion_of_client,
    deliver,
    erasure,
    rp_initiated_logout,
    scene_of,
    short_suspension,
    succeeds,
    suspension,
)
from tests.tenants.conftest import run_command
from tests.tenants.records import sessions_locked
from tests.world import TestTenant
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.clients.models import PendingClientChange
from userflow.events.models import WebhookEndpoint, WebhookMessage
from userflow.sessions.ending import end_found, end_sessions
from userflow.webhooks.logout_tokens import list_deliveries, retry_deliveries

Deliverers = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def receiver() -> Iterator[LogoutReceiver]:
    made = LogoutReceiver()
    yield made
    made.close()


@pytest.fixture
def scene(new_tenant: Callable[[], TestTenant], receiver: LogoutReceiver) -> Scene:
    return scene_of(new_tenant(), receiver)


def messages(scene: Scene) -> list[WebhookMessage]:
    with in_tenant(scene.tenant.id):
        return list(WebhookMessage.objects.filter(endpoint_id=scene.client_id).order_by("pk"))


def pauses_pass(scene: Scene) -> None:
    """Make every retry due."""
    with in_tenant(scene.tenant.id):
        WebhookMessage.objects.filter(status="pending").update(next_attempt_at=now())
        WebhookEndpoint.objects.update(paused_until=None)


def sign_ins(scene: Scene, number: int) -> None:
    """End the user's session at the application `number` times more."""
    for _ in range(number):
        scene.app.tokens()
    with in_tenant(scene.tenant.id), END_USERS.atomic():
        children = EndUserSession.objects.filter(client_id=scene.client_id, ended_at=None)
        assert end_found(END_USERS, children, reason="signed_out") == number + 1


def test_failed_delivery_is_retried_with_a_new_token(scene: Scene, receiver: LogoutReceiver) -> None:
    receiver.respond = lambda: (500, {})
    rp_initiated_logout(scene)
    deliver()
    deliver()
    (waiting,) = messages(scene)
    assert (waiting.status, waiting.attempts, waiting.last_status) == ("pending", 1, 500)
    receiver.respond = lambda: (204, {})
    pauses_pass(scene)
    deliver()
    (taken,) = messages(scene)
    assert (taken.status, taken.attempts, taken.last_status) == ("delivered", 2, 204)
    first, second = (verified(token, scene.tenant, scene.client_id) for token in receiver.received)
    assert (first["sid"], first["jti"] != second["jti"]) == (second["sid"], True)


@pytest.mark.parametrize("status", [400, 410])
def test_rejected_logout_token_is_not_retried(status: int, scene: Scene, receiver: LogoutReceiver) -> None:
    receiver.respond = lambda: (status, {})
    rp_initiated_logout(scene)
    deliver()
    (dead,) = messages(scene)
    assert (dead.status, dead.last_status, dead.attempts) == ("dead", status, 1)
    # The application is not cut off.
    receiver.respond = lambda: (200, {})
    scene.app.sign_in(scene.person)
    scene.app.tokens()
    rp_initiated_logout(scene)
    deliver()
    assert len(receiver.taken) == 1


def test_redirects_are_not_followed(scene: Scene, receiver: LogoutReceiver) -> None:
    other = LogoutReceiver()
    receiver.respond = lambda: (307, {"Location": other.url})
    rp_initiated_logout(scene)
    deliver()
    other.close()
    assert (other.received, messages(scene)[0].last_status) == ([], 307)


def test_one_failing_token_blocks_no_other(scene: Scene, receiver: LogoutReceiver) -> None:
    statuses = iter([500, 200, 200, 200])
    receiver.respond = lambda: (next(statuses), {})
    sign_ins(scene, 3)
    deliver()
    assert [message.status for message in messages(scene)] == ["pending", "delivered", "delivered", "delivered"]


def test_silent_application_is_tried_once_a_pause(scene: Scene, receiver: LogoutReceiver) -> None:
    receiver.close()
    sign_ins(scene, 3)
    for _ in range(3):
        deliver()
    assert [(message.status, message.attempts) for message in messages(scene)] == [("pending", 1)] + [
        ("pending", 0)
    ] * 3
    assert messages(scene)[0].last_error == "connection failed"


def seconds_pass(scene: Scene, seconds: int) -> None:
    """Move retries and the pause of the application back by this time."""
    gone = timedelta(seconds=seconds)
    with in_tenant(scene.tenant.id):
        WebhookMessage.objects.filter(status="pending").update(next_attempt_at=F("next_attempt_at") - gone)
        WebhookEndpoint.objects.exclude(paused_until=None).update(paused_until=F("paused_until") - gone)


def test_new_token_does_not_wait_for_retry_of_another(scene: Scene, receiver: LogoutReceiver, settings: Any) -> None:
    settings.WEBHOOK_RETRY_FIRST_SECONDS = 300
    statuses = iter([503, 204])
    receiver.respond = lambda: (next(statuses), {})
    sign_ins(scene, 0)
    deliver()
    seconds_pass(scene, 11)
    scene.app.tokens()
    sign_ins(scene, 0)
    deliver()
    assert [(message.status, message.attempts) for message in messages(scene)] == [("pending", 1), ("delivered", 1)]


def test_silent_application_is_tried_once_in_ten_seconds(scene: Scene, receiver: LogoutReceiver, settings: Any) -> None:
    settings.WEBHOOK_RETRY_FIRST_SECONDS = 1
    receiver.close()
    sign_ins(scene, 2)
    for passed, attempts in ((0, [1, 0, 0]), (11, [1, 1, 0]), (11, [1, 1, 1]), (11, [2, 1, 1])):
        seconds_pass(scene, passed)
        deliver()
        assert [message.attempts for message in messages(scene)] == attempts


def test_application_that_asks_to_wait_is_not_tried_before(scene: Scene, receiver: LogoutReceiver) -> None:
    answers = iter([(429, {"Retry-After": "60"}), (204, {}), (204, {})])
    receiver.respond = lambda: next(answers)
    sign_ins(scene, 1)
    for passed, delivered in ((0, 0), (20, 0), (41, 2)):
        seconds_pass(scene, passed)
        deliver()
        assert sum(message.status == "delivered" for message in messages(scene)) == delivered


def test_dead_application_gives_up_after_the_retry_period(scene: Scene, receiver: LogoutReceiver) -> None:
    receiver.close()
    rp_initiated_logout(scene)
    with in_tenant(scene.tenant.id):
        WebhookMessage.objects.update(queued_at=now() - timedelta(days=2))
    deliver()
    assert messages(scene)[0].status == "dead"


def test_address_in_private_network_is_not_called(scene: Scene, receiver: LogoutReceiver, settings: Any) -> None:
    settings.CLIENT_ALLOWED_NETWORKS = []
    rp_initiated_logout(scene)
    deliver()
    assert receiver.received == []
    assert messages(scene)[0].last_error == "address not allowed"
    body = {"backchannel_logout_uri": "http://169.254.169.254/"}
    assert scene.tenant.api.patch(scene.client_path, body).status_code == 400


def test_suspended_tenant_gets_logout_tokens_only(scene: Scene, receiver: LogoutReceiver) -> None:
    with in_tenant(scene.tenant.id):
        parent = scene.child().parent_id
    suspension(scene)
    deliver()
    assert len(receiver.taken) == 1
    run_command("resume_tenant", scene.tenant.slug)
    with in_tenant(scene.tenant.id):
        # The sign-in at the tenant continues.
        assert EndUserSession.objects.filter(pk=parent, ended_at=None).exists()
        assert not EndUserSession.objects.filter(client_id=scene.client_id, ended_at=None).exists()


def test_resumed_tenant_has_ended_sessions_at_once(scene: Scene) -> None:
    short_suspension(scene)
    refused = scene.app.token(grant_type="refresh_token", refresh_token=scene.tokens["refresh_token"])
    assert (refused.status_code, scene.child().end_reason) == (400, "tenant_suspended")


def test_deleted_client_gets_the_tokens_that_wait(
    new_tenant: Callable[[], TestTenant], receiver: LogoutReceiver
) -> None:
    scene = scene_of(new_tenant(), receiver, id_token_signed_response_alg="RS256")
    receiver.respond = lambda: (500, {})
    rp_initiated_logout(scene)
    deliver()
    deletion_of_client(scene)
    receiver.respond = lambda: (200, {})
    pauses_pass(scene)
    deliver()
    (token,) = receiver.taken
    verified(token, scene.tenant, scene.client_id, "RS256")


@contextmanager
def busy(tenant: TestTenant) -> Iterator[None]:
    """Let the tenant be moving."""
    rows = TenantDatabase.objects.filter(pk=tenant.id)
    for status in (State.MOVING, State.ACTIVE):
        rows.update(status=status)
        lookup.forget()
        if status is State.MOVING:
            yield


@pytest.mark.parametrize("change", [deletion_of_client, deactivation_of_client], ids=lambda change: change.__name__)
def test_client_of_busy_tenant_gets_logout_tokens_later(
    change: Callable[[Scene], None], scene: Scene, receiver: LogoutReceiver
) -> None:
    with busy(scene.tenant):
        change(scene)
        deliver()
    assert receiver.received == []
    deliver()
    assert len(receiver.taken) == 1
    assert not PendingClientChange.objects.filter(tenant_id=scene.tenant.id).exists()


def test_address_that_sessions_cannot_follow_applies_later(
    new_tenant: Callable[[], TestTenant], receiver: LogoutReceiver
) -> None:
    scene = scene_of(new_tenant(), None)
    with sessions_locked(scene.tenant):
        succeeds(scene.tenant.api.patch(scene.client_path, {"backchannel_logout_uri": receiver.url}))
    deliver()
    rp_initiated_logout(scene)
    deliver()
    assert len(receiver.taken) == 1


def test_activated_client_keeps_its_new_sessions(scene: Scene) -> None:
    with busy(scene.tenant):
        deactivation_of_client(scene)
        assert scene.tenant.api.patch(scene.client_path, {"active": True}).status_code == 503
    succeeds(scene.tenant.api.patch(scene.client_path, {"active": True}))
    tokens = scene.app.tokens()
    deliver()
    succeeds(scene.app.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"]))


def test_killed_deliverer_loses_no_logout(scene: Scene, receiver: LogoutReceiver, deliverers: Deliverers) -> None:
    receiver.slowness = 0.05
    sign_ins(scene, 30)
    first = deliverers()
    receiver.wait_for(5)
    first.kill()
    first.wait()
    with in_tenant(scene.tenant.id):
        # The lease of the killed process still has to run out.
        WebhookEndpoint.objects.filter(pk=scene.client_id).exclude(lease=None).update(leased_until=now())
    taken = len(receiver.taken)
    deliverers()

    def told() -> set[str]:
        return {verified(token, scene.tenant, scene.client_id)["sid"] for token in receiver.taken}

    receiver.wait_for(31)
    if len(told()) < 31:
        # The token in flight was sent twice.
        receiver.wait_for(32)
    assert (len(told()), taken < 31, len(receiver.taken) <= 32) == (31, True, True)


def test_two_deliverers_send_each_logout_once(scene: Scene, receiver: LogoutReceiver, deliverers: Deliverers) -> None:
    receiver.slowness = 0.005
    for _ in range(2):
        deliverers()
    sign_ins(scene, 30)
    receiver.wait_for(31)
    told = [verified(token, scene.tenant, scene.client_id)["sid"] for token in receiver.taken]
    assert (len(told), len(set(told)), receiver.most_at_once) == (31, 31, 1)


def test_rolled_back_end_sends_nothing(scene: Scene, receiver: LogoutReceiver) -> None:
    class Undone(Exception):
        """Rolls the end back."""

    with in_tenant(scene.tenant.id), suppress(Undone), END_USERS.atomic():
        end_sessions(END_USERS, user_id=scene.person.id, reason="signed_out")
        raise Undone
    deliver()
    assert receiver.received == []


def test_tenant_with_logout_address_stays_on_sweep_list(scene: Scene) -> None:
    listed = WebhookTenant.objects.filter(pk=scene.tenant.id)
    listed.update(touched_at=now() - timedelta(hours=2))
    deliver()
    assert listed.exists()
    succeeds(scene.tenant.api.patch(scene.client_path, {"backchannel_logout_uri": None}))
    listed.update(touched_at=now() - timedelta(hours=2))
    deliver()
    assert not listed.exists()


def test_retry_sends_dead_tokens_again(scene: Scene, receiver: LogoutReceiver) -> None:
    receiver.respond = lambda: (400, {})
    rp_initiated_logout(scene)
    deliver()
    receiver.respond = lambda: (200, {})
    client_id = UUID(scene.client_id)
    assert retry_deliveries(tenant_id=scene.tenant.id, client_id=client_id) == 1
    deliver()
    assert len(receiver.taken) == 1
    (row,) = list_deliveries(tenant_id=scene.tenant.id, client_id=client_id, limit=10)
    assert (row.status, row.last_status) == ("delivered", 200)
    assert retry_deliveries(tenant_id=scene.tenant.id, client_id=client_id) == 0


def test_erasure_deletes_delivered_logouts_of_the_user(scene: Scene, receiver: LogoutReceiver) -> None:
    rp_initiated_logout(scene)
    deliver()
    erasure(scene)
    assert messages(scene) == []

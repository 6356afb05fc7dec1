"""Endpoints over REST: permissions, validation, and what responses contain."""

import secrets
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as given
from django.db import connections
from django.utils.timezone import now

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.journals import audit_trails
from tenants.lifecycle import retention
from tenants.models import WebhookTenant
from tests.userflow.webhooks.conftest import ENDPOINTS, Listening, deliver, listen
from tests.userflow.webhooks.consumer import Consumer
from tests.world import PASSWORD, Api, TestTenant, capture_statements, sign_in_admin
from userflow.admins.actions import create_admin_user
from userflow.events.models import WebhookEndpoint, WebhookMessage
from userflow.events.outbox import publish_for_each

URL = "http://127.0.0.1:9/hooks"


@pytest.fixture
def home(new_tenant: Callable[[], TestTenant]) -> TestTenant:
    return new_tenant()


def made(home: TestTenant, **members: Any) -> dict[str, Any]:
    response = home.api.post(ENDPOINTS, {"url": URL, **members})
    assert response.status_code == 201, response.content
    return dict(response.json())


def test_webhook_endpoint_create_update_delete(home: TestTenant) -> None:
    endpoint = made(home, description="CRM", events=["group.*", "group.*"])
    assert endpoint.pop("secret").startswith("whsec_")
    assert endpoint["events"] == ["group.*"]
    path = f"{ENDPOINTS}/{endpoint['id']}"
    assert home.api.get(path).json() == endpoint
    assert home.api.get(ENDPOINTS).json() == {"endpoints": [endpoint]}
    changed = home.api.patch(path, {"enabled": False, "description": "Old CRM"}).json()
    assert (changed["enabled"], changed["disabled_reason"], changed["description"]) == (False, "admin", "Old CRM")
    assert home.api.delete(path).status_code == 200
    assert home.api.get(path).status_code == 404
    with in_tenant(home.id):
        actions = set(TenantEvent.objects.filter(action__startswith="webhook.").values_list("action", flat=True))
    assert actions == {"webhook.created", "webhook.updated", "webhook.deleted"}


def test_webhook_secret_is_sealed_and_shown_once(home: TestTenant) -> None:
    endpoint = made(home)
    assert b'secret"' not in home.api.get(f"{ENDPOINTS}/{endpoint['id']}").content
    with in_tenant(home.id):
        stored = bytes(WebhookEndpoint.objects.get().secret_sealed)
    assert endpoint["secret"].encode() not in stored


@pytest.mark.parametrize(
    ("body", "member"),
    [
        ({}, "url"),
        ({"url": "ftp://example.com/"}, "url"),
        ({"url": "https://user:pass@example.com/"}, "url"),
        ({"url": URL, "events": []}, "events"),
        ({"url": URL, "events": ["group.exploded"]}, "events.0"),
        ({"url": URL, "events": ["webhook.test"]}, "events.0"),
        ({"url": URL, "enabled": "yes"}, "enabled"),
    ],
)
def test_create_endpoint_rejects_invalid_fields(home: TestTenant, body: dict[str, Any], member: str) -> None:
    response = home.api.post(ENDPOINTS, body)
    assert response.status_code == 400
    assert member in response.json()["details"]


def test_endpoint_limit_holds_in_a_race(home: TestTenant, settings: Any) -> None:
    settings.WEBHOOK_ENDPOINTS_PER_TENANT = 3
    responses: list[int] = []

    def make() -> None:
        responses.append(Api(token=home.api.token).post(ENDPOINTS, {"url": URL}).status_code)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(responses) == [201] * 3 + [409] * 5


def test_webhook_endpoints_require_permissions(home: TestTenant, operator: Api) -> None:
    name = f"auditor-{home.admin.username}"
    create_admin_user(
        tenant_id=home.id, username=name, email=f"{name}@example.com", password=PASSWORD, roles=["auditor"]
    )
    auditor = Api(token=sign_in_admin(name)["access_token"])
    assert auditor.get(ENDPOINTS).status_code == 200
    assert auditor.post(ENDPOINTS, {"url": URL}).status_code == 403
    assert home.as_user(home.register()).get(ENDPOINTS).status_code == 403
    assert Api().get(ENDPOINTS).status_code == 401
    assert operator.get(ENDPOINTS).status_code == 400
    assert operator.get(ENDPOINTS, headers={"X-Tenant-ID": str(home.id)}).status_code == 200


def test_endpoint_of_other_tenant_is_404(home: TestTenant, other_tenant: TestTenant) -> None:
    endpoint = made(home)
    path = f"{ENDPOINTS}/{endpoint['id']}"
    calls = [
        other_tenant.api.get(path),
        other_tenant.api.patch(path, {"enabled": False}),
        other_tenant.api.delete(path),
        other_tenant.api.post(f"{path}/secret"),
        other_tenant.api.post(f"{path}/test"),
        other_tenant.api.get(f"{path}/messages"),
        other_tenant.api.post(f"{path}/replay", {"status": "dead"}),
    ]
    assert [response.status_code for response in calls] == [404] * len(calls)
    assert other_tenant.api.get(f"{ENDPOINTS}?tenant_id={home.id}").status_code == 403
    assert home.api.get(path).json()["enabled"]


def test_test_event_goes_to_its_endpoint_only(home: TestTenant, consumer: Consumer, other_consumer: Consumer) -> None:
    mine = listen(home, consumer, "group.created")
    listen(home, other_consumer)
    message_id = home.api.post(f"{mine.path}/test").json()["message_id"]
    deliver()
    assert [(each.id, each.event["type"]) for each in consumer.seen] == [(message_id, "webhook.test")]
    assert other_consumer.seen == []
    home.api.patch(mine.path, {"enabled": False})
    assert home.api.post(f"{mine.path}/test").status_code == 409


def test_message_list_pages_by_cursor_without_bodies(listening: Listening) -> None:
    with in_tenant(listening.home.id), tenant_atomic():
        publish_for_each("group.created", ({"name": str(number)} for number in range(5)))
    first = listening.home.api.get(f"{listening.path}/messages", {"limit": 3}).json()
    second = listening.home.api.get(f"{listening.path}/messages", {"limit": 3, "cursor": first["next_cursor"]}).json()
    ids = [message["id"] for message in first["messages"] + second["messages"]]
    assert len(ids) == 5
    assert ids == sorted(ids, reverse=True)
    assert second["next_cursor"] is None
    assert "body" not in first["messages"][0]
    assert len(listening.messages(event="group.created")) == 5
    assert listening.messages(event="group.deleted") == []
    for odd in ({"status": "odd"}, {"event": "odd"}):
        assert listening.home.api.get(f"{listening.path}/messages", odd).status_code == 400


def test_replay_by_ids_or_time(listening: Listening, consumer: Consumer) -> None:
    with in_tenant(listening.home.id), tenant_atomic():
        publish_for_each("group.created", ({"name": str(number)} for number in range(4)))
    deliver()
    newest, *_ = listening.messages()
    replay = f"{listening.path}/replay"
    assert listening.home.api.post(replay, {}).status_code == 400
    response = listening.home.api.post(replay, {"message_ids": [newest["message_id"], "msg_unknown"]}).json()
    assert (response["replayed"], response["more"]) == (1, False)
    deliver()
    assert [each.event["data"]["name"] for each in consumer.taken()] == ["0", "1", "2", "3", "3"]
    response = listening.home.api.post(replay, {"since": "2020-01-01T00:00:00Z", "status": "delivered"}).json()
    assert response["replayed"] == 4
    deliver()
    assert len(consumer.taken()) == 9
    with in_tenant(listening.home.id):
        assert TenantEvent.objects.filter(action="webhook.replayed").count() == 2


def test_new_url_retries_messages_of_its_endpoint_only(
    listening: Listening, consumer: Consumer, other_consumer: Consumer
) -> None:
    beside = listen(listening.home, other_consumer)
    consumer.respond = other_consumer.respond = lambda event: (503, {"Retry-After": "600"})
    listening.home.register()
    deliver()
    before = [each.messages()[0]["next_attempt_at"] for each in (listening, beside)]
    assert listening.home.api.patch(listening.path, {"url": consumer.url}).status_code == 200
    after = [each.messages()[0]["next_attempt_at"] for each in (listening, beside)]
    assert (after[0] < before[0], after[1]) == (True, before[1])


@pytest.mark.parametrize("by", ["since", "status", "message_ids"])
def test_replay_reaches_its_own_endpoint_only(
    listening: Listening, consumer: Consumer, other_consumer: Consumer, by: str
) -> None:
    beside = listen(listening.home, other_consumer)
    listening.home.register()
    deliver()
    ids = [each["message_id"] for each in listening.messages() + beside.messages()]
    asked = {"since": "2020-01-01T00:00:00Z", "status": "delivered", "message_ids": ids}
    replayed = listening.home.api.post(f"{listening.path}/replay", {by: asked[by]})
    assert replayed.json()["replayed"] == 1
    assert [each["status"] for each in beside.messages()] == ["delivered"]
    deliver()
    assert (len(consumer.taken()), len(other_consumer.taken())) == (2, 1)


def test_erasure_deletes_sent_messages(listening: Listening, consumer: Consumer) -> None:
    home = listening.home
    home.register()
    person = home.register()
    deliver()
    body = {"tenant_id": str(home.id), "user_id": str(person.id)}
    assert home.api.post("/uflow/user/enduser/delete_all", body).status_code == 200
    deliver()
    assert consumer.seen[-1].event["type"] == "end_user.erased"
    with in_tenant(home.id):
        left = WebhookMessage.objects.filter(subject_id=person.id)
        # One per endpoint.
        assert list(left.values_list("event", flat=True)) == ["end_user.erased"] * 2


def test_erasure_deletes_sent_invitation_messages(listening: Listening, consumer: Consumer) -> None:
    api, email = listening.home.api, f"guest-{secrets.token_hex(5)}@example.com"
    listening.home.register()
    for invited in (email, f"other-{email}"):
        assert api.post("/uflow/admin/invitations", {"email": invited, "kind": "end_user"}).status_code == 201
    person = listening.home.register(email)
    deliver()
    body = {"tenant_id": str(listening.home.id), "user_id": str(person.id)}
    assert api.post("/uflow/user/enduser/delete_all", body).json()["deleted"]["invitations"] == 1
    with in_tenant(listening.home.id):
        left = [told.body for told in WebhookMessage.objects.filter(event="invitation.created")]
    assert [f'"other-{email}"' in told for told in left] == [True, True]


def test_erasure_deletes_messages_with_stale_tenant_cache(listening: Listening, consumer: Consumer) -> None:
    home = listening.home
    home.register()
    person = home.register()
    deliver()
    # A request that began just before the first endpoint was created sees the tenant like this.
    WebhookTenant.objects.filter(pk=home.id).delete()
    body = {"tenant_id": str(home.id), "user_id": str(person.id)}
    assert home.api.post("/uflow/user/enduser/delete_all", body).status_code == 200
    with in_tenant(home.id):
        assert not WebhookMessage.objects.filter(subject_id=person.id).exists()


def test_erasure_deletes_messages_of_disabled_endpoint(
    listening: Listening, consumer: Consumer, other_consumer: Consumer
) -> None:
    home = listening.home
    listen(home, other_consumer)
    stays, goes = home.register(), home.register()
    home.api.patch(listening.path, {"enabled": False})
    body = {"tenant_id": str(home.id), "user_id": str(goes.id)}
    assert home.api.post("/uflow/user/enduser/delete_all", body).status_code == 200
    with in_tenant(home.id):
        waits = WebhookMessage.objects.filter(endpoint_id=listening.endpoint_id, status="pending")
        assert list(waits.values_list("subject_id", flat=True)) == [stays.id]
    deliver()
    # An enabled endpoint gets everything.
    assert [each.event["type"] for each in other_consumer.seen] == [*["end_user.created"] * 2, "end_user.erased"]
    home.api.patch(listening.path, {"enabled": True})
    deliver()
    assert [each.event["data"]["user_id"] for each in consumer.seen] == [str(stays.id)]


def test_old_messages_of_disabled_endpoint_are_purged(listening: Listening) -> None:
    home = listening.home
    with in_tenant(home.id), tenant_atomic():
        publish_for_each("group.created", ({"name": str(number)} for number in range(2)))
        # The first one per endpoint: the other endpoint is enabled and keeps its own.
        oldest = WebhookMessage.objects.order_by("pk").values("pk")[:2]
        WebhookMessage.objects.filter(pk__in=oldest).update(queued_at=now() - timedelta(days=31))
    owner = audit_trails.Owner(home.slug, home.id)
    assert "webhook messages" not in retention.purge(owner).rows
    home.api.patch(listening.path, {"enabled": False})
    assert retention.purge(owner).rows["webhook messages"] == 1
    assert [message["status"] for message in listening.messages()] == ["pending"]


def test_publish_costs_one_statement_or_none(home: TestTenant, consumer: Consumer) -> None:
    def counts() -> tuple[int, int]:
        with capture_statements() as seen:
            home.api.post("/authmgr/groups", {"name": f"Group {len(groups)}"})
        groups.append(1)
        return seen.counts

    groups: list[int] = []
    counts()
    shared, own = counts()
    listen(home, consumer)
    assert counts() == (shared, own + 1)


def test_event_list_returns_events_and_filters(home: TestTenant) -> None:
    listed = home.api.get("/uflow/webhooks/events").json()
    assert "end_user.created" in {each["event"] for each in listed["events"]}
    assert "end_user.*" in listed["filters"]


def test_old_settled_messages_are_purged(listening: Listening) -> None:
    home = listening.home
    with in_tenant(home.id), tenant_atomic():
        publish_for_each("group.created", ({"name": str(number)} for number in range(3)))
    deliver()
    with in_tenant(home.id):
        oldest = WebhookMessage.objects.filter(endpoint_id=listening.endpoint_id).order_by("pk").first()
        assert oldest is not None
        WebhookMessage.objects.filter(pk=oldest.pk).update(settled_at=now() - timedelta(days=8))
    owner = audit_trails.Owner(home.slug, home.id)
    assert retention.purge(owner).rows["webhook messages"] == 1
    home.api.delete(listening.path)
    assert retention.purge(owner).rows["webhook messages"] == 2


def test_parallel_name_lookups_are_limited(home: TestTenant, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{ENDPOINTS}/{made(home)['id']}"
    asked, answered, honest = threading.Semaphore(0), threading.Event(), socket.getaddrinfo

    def slow(host: str, *rest: Any, **more: Any) -> Any:
        if host == "slow.example":
            asked.release()
            answered.wait(60)
            host = "127.0.0.1"
        return honest(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    most = given.WEB_THREADS // 4

    def attempt(_: int) -> int:
        try:
            return int(Api(token=home.api.token).post(ENDPOINTS, {"url": "http://slow.example/"}).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(most) as pool:
        waiting = pool.map(attempt, range(most))
        assert all(asked.acquire(timeout=60) for _ in range(most))
        for refused in (home.api.post(ENDPOINTS, {"url": URL}), home.api.patch(path, {"url": URL})):
            assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
        answered.set()
        assert 503 not in waiting
    assert home.api.patch(path, {"url": URL}).status_code == 200

"""Messages reach consumers signed, in order and complete."""

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.db.models.functions import Now
from django.utils.timezone import now

from tenants.entering.context import in_tenant, tenant_atomic
from tests.machine.conftest import within
from tests.userflow.webhooks.conftest import Listening, deliver, listen
from tests.userflow.webhooks.consumer import Consumer, verifies
from tests.world import TestTenant
from userflow.events.models import ATTEMPTS_KEPT, RESPONSE_CHARACTERS, Attempt, WebhookEndpoint, WebhookMessage
from userflow.events.outbox import publish, publish_for_each
from userflow.webhooks.queue import lease_seconds

Deliverers = Callable[[], "subprocess.Popen[str]"]


def publish_named(home: TestTenant, *names: object) -> None:
    with in_tenant(home.id), tenant_atomic():
        publish_for_each("group.created", ({"name": str(name)} for name in names))


def firsts(consumer: Consumer) -> list[str]:
    """Return every received name once, accepted or not, in the order of the first delivery."""
    return list(dict.fromkeys(each.event["data"]["name"] for each in consumer.seen))


def never_back(consumer: Consumer) -> bool:
    """Return whether no accepted message came again after a later one."""
    order = [int(each.event["data"]["name"]) for each in consumer.seen]
    return order == sorted(order)


def test_public_library_verifies_signature(listening: Listening, consumer: Consumer) -> None:
    person = listening.home.register(name="Ada")
    deliver()
    (seen,) = consumer.seen
    assert verifies(seen, listening.secret)
    assert not verifies(seen, "whsec_" + "A" * 44)
    assert seen.event["type"] == "end_user.created"
    data = seen.event["data"]
    assert (data["user_id"], data["tenant_id"], data["name"]) == (str(person.id), str(listening.home.id), "Ada")
    shown = listening.home.api.get(f"/uflow/user/enduser/{listening.home.id}/{person.id}").json()
    # Roles and groups have events of their own.
    assert data.keys() - {"user_id", "tenant_id", "via"} == shown.keys() - {"id", "roles", "groups"}
    assert b"argon2" not in seen.body
    assert listening.read()["last_delivered_at"]


def test_consumer_outage_keeps_all_messages_in_order(
    listening: Listening, consumer: Consumer, deliverers: Deliverers
) -> None:
    down = threading.Event()
    down.set()
    consumer.respond = lambda event: (500 if down.is_set() else 200, {})
    deliverers()
    publish_named(listening.home, *range(20))
    while len(consumer.seen) < 2:
        time.sleep(0.05)
    publish_named(listening.home, *range(20, 30))
    down.clear()
    assert len(consumer.wait_for(30)) == 30
    assert firsts(consumer) == [str(number) for number in range(30)]
    assert never_back(consumer)


def test_killed_deliverer_loses_no_message(listening: Listening, consumer: Consumer, deliverers: Deliverers) -> None:
    consumer.slowness = 0.02
    publish_named(listening.home, *range(60))
    first = deliverers()
    consumer.wait_for(10)
    first.kill()
    first.wait()
    reached = len(consumer.taken())
    assert reached < 60
    # The lease of the killed process still has to run out.
    with in_tenant(listening.home.id):
        ends = F("leased_until") - timedelta(seconds=lease_seconds() - 2)
        assert WebhookEndpoint.objects.filter(pk=listening.endpoint_id).exclude(lease=None).update(leased_until=ends)
    deliverers()
    taken = consumer.wait_for(60)
    assert firsts(consumer) == [str(number) for number in range(60)]
    assert never_back(consumer)
    # Only the messages in flight at the kill came twice, with the same id.
    assert len(taken) <= 61


def test_two_deliverers_send_each_message_once(
    listening: Listening, consumer: Consumer, deliverers: Deliverers
) -> None:
    consumer.slowness = 0.005
    publish_named(listening.home, *range(50))
    for _ in range(2):
        deliverers()
    for start in range(50, 100, 10):
        publish_named(listening.home, *range(start, start + 10))
    taken = consumer.wait_for(100)
    assert [each.event["data"]["name"] for each in taken] == [str(number) for number in range(100)]
    assert consumer.most_at_once == 1


def test_sigterm_finishes_messages_in_flight(listening: Listening, consumer: Consumer, deliverers: Deliverers) -> None:
    consumer.slowness = 0.3
    publish_named(listening.home, *range(30))
    process = deliverers()
    consumer.wait_for(1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    reached = len(consumer.taken())
    assert reached < 30
    consumer.slowness = 0
    deliver()
    assert [each.event["data"]["name"] for each in consumer.taken()] == [str(number) for number in range(30)]


def test_late_commit_is_not_overtaken(listening: Listening, consumer: Consumer) -> None:
    home, first_is_written, first_may_end = listening.home, threading.Event(), threading.Event()

    def slowly() -> None:
        with in_tenant(home.id), tenant_atomic():
            publish("group.created", {"name": "1"})
            first_is_written.set()
            first_may_end.wait(60)

    slow = threading.Thread(target=slowly)
    slow.start()
    assert first_is_written.wait(60)
    publish_named(home, 2)
    deliver()
    assert consumer.seen == []
    first_may_end.set()
    slow.join()
    deliver()
    assert consumer.names() == ["1", "2"]


def test_last_event_matches_final_user_state(listening: Listening, consumer: Consumer) -> None:
    person, home = listening.home.register(), listening.home

    def rename(number: int) -> None:
        home.api.put(f"/uflow/user/enduser/{home.id}/{person.id}", {"name": f"Name {number}"})

    threads = [threading.Thread(target=rename, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    deliver()
    assert len(consumer.seen) == 9
    stored = home.api.get(f"/uflow/user/enduser/{home.id}/{person.id}").json()
    assert consumer.seen[-1].event["data"]["name"] == stored["name"]
    assert consumer.seen[-1].event["data"]["updated_at"] == stored["updated_at"]


def test_endpoint_gets_only_its_tenants_filtered_events(
    new_tenant: Callable[[], TestTenant], consumer: Consumer, other_consumer: Consumer
) -> None:
    mine, theirs = new_tenant(), new_tenant()
    listen(mine, consumer, "group.created")
    listen(theirs, other_consumer, "end_user.*")
    for home in (mine, theirs):
        home.register()
        home.api.post("/authmgr/groups", {"name": "Readers"})
    deliver()
    assert [(each.event["type"], each.event["data"]["tenant_id"]) for each in consumer.seen] == [
        ("group.created", str(mine.id))
    ]
    assert [(each.event["type"], each.event["data"]["tenant_id"]) for each in other_consumer.seen] == [
        ("end_user.created", str(theirs.id))
    ]


@pytest.fixture
def impatient(settings: Any) -> None:
    """Dead-letter messages at their first failure."""
    settings.WEBHOOK_RETRY_SECONDS = 0


@pytest.mark.usefixtures("impatient")
def test_dead_letter_is_listed_and_can_be_replayed(listening: Listening, consumer: Consumer) -> None:
    consumer.respond = lambda event: (422 if event["data"]["name"] == "bad" else 200, {})
    publish_named(listening.home, "a", "bad", "b")
    deliver()
    assert consumer.names() == ["a", "b"]
    (dead,) = listening.messages(status="dead")
    assert (dead["last_status"], dead["last_error"], dead["attempts"]) == (422, "status 422", 1)
    consumer.respond = lambda event: (200, {})
    answer = listening.home.api.post(f"{listening.path}/replay", {"status": "dead"})
    assert answer.json()["replayed"] == 1
    deliver()
    assert [each.event["data"]["name"] for each in consumer.taken()] == ["a", "b", "bad"]
    assert consumer.seen[-1].id == dead["message_id"]
    assert listening.messages(status="dead") == []


def test_newest_attempts_are_logged_with_response(listening: Listening, consumer: Consumer) -> None:
    publish_named(listening.home, "a")
    old = Attempt(at=now().isoformat(), milliseconds=1, status=None, error="connection failed", response="")
    with in_tenant(listening.home.id):
        WebhookMessage.objects.update(attempt_log=[old] * ATTEMPTS_KEPT)
    consumer.respond, consumer.response_body = lambda event: (422, {}), b"unknown \0 group " + b"x" * 9000
    deliver()
    with in_tenant(listening.home.id):
        log = WebhookMessage.objects.get(endpoint_id=listening.endpoint_id).attempt_log
    assert (len(log), log[-2], log[-1]["status"], log[-1]["error"]) == (ATTEMPTS_KEPT, old, 422, "status 422")
    assert log[-1]["response"].startswith("unknown \N{REPLACEMENT CHARACTER} group xxx")
    assert (len(log[-1]["response"]), log[-1]["milliseconds"] < 3000) == (RESPONSE_CHARACTERS, True)


def test_status_410_disables_endpoint(listening: Listening, consumer: Consumer) -> None:
    consumer.respond = lambda event: (410, {})
    publish_named(listening.home, "a", "b")
    deliver()
    assert len(consumer.seen) == 1
    found = listening.read()
    assert (found["enabled"], found["disabled_reason"]) == (False, "gone")
    consumer.respond = lambda event: (200, {})
    listening.home.api.patch(listening.path, {"enabled": True})
    deliver()
    assert consumer.names() == ["a", "b"]


def test_delivery_respects_retry_after(listening: Listening, consumer: Consumer) -> None:
    consumer.respond = lambda event: (429, {"Retry-After": "3000"})
    publish_named(listening.home, "a")
    deliver()
    deliver()
    assert len(consumer.seen) == 1
    (waiting,) = listening.messages(status="pending")
    assert waiting["next_attempt_at"] > time.strftime("%Y-%m-%dT%H:%M", time.gmtime(time.time() + 2800))


def test_endpoint_failing_for_days_is_disabled(listening: Listening, consumer: Consumer, settings: Any) -> None:
    with in_tenant(listening.home.id):
        WebhookEndpoint.objects.update(failing_since=now() - timedelta(days=6))
    consumer.respond = lambda event: (500, {})
    publish_named(listening.home, "a")
    deliver()
    assert listening.read()["disabled_reason"] == "failing"


def test_changed_url_applies_during_a_turn(
    listening: Listening, consumer: Consumer, other_consumer: Consumer, deliverers: Deliverers
) -> None:
    consumer.slowness = 0.05
    publish_named(listening.home, *range(60))
    deliverers()
    consumer.wait_for(5)
    assert listening.home.api.patch(listening.path, {"url": other_consumer.url}).status_code == 200
    # Besides those in flight.
    reached = len(consumer.seen) + 1
    # The holder releases the lease when it stops, so it need not expire.
    with in_tenant(listening.home.id):
        held = WebhookEndpoint.objects.filter(pk=listening.endpoint_id).exclude(lease=None)
        held.update(leased_until=Now() + timedelta(hours=1))
    assert other_consumer.wait_for(1)
    # One may have been in flight.
    assert within(60, lambda: len({*firsts(consumer), *firsts(other_consumer)}) == 60)
    assert len(consumer.seen) <= reached < 60
    assert firsts(consumer) + firsts(other_consumer) == [str(number) for number in range(60)]


@pytest.mark.parametrize("status", [410, 500])
def test_failure_of_old_url_does_not_count_for_new(
    listening: Listening, consumer: Consumer, other_consumer: Consumer, deliverers: Deliverers, status: int
) -> None:
    under_way, may_answer = threading.Event(), threading.Event()

    def respond(event: dict[str, Any]) -> tuple[int, dict[str, str]]:
        under_way.set()
        may_answer.wait(2)
        return status, {}

    consumer.respond = respond
    publish_named(listening.home, "a", "b")
    deliverers()
    assert under_way.wait(60)
    listening.home.api.patch(listening.path, {"url": other_consumer.url})
    may_answer.set()
    other_consumer.wait_for(2)
    assert other_consumer.names() == ["a", "b"]
    # The outcome of the last one is recorded after the consumer's response.
    assert within(60, lambda: [message["attempts"] for message in listening.messages()] == [1, 1])
    assert listening.read()["enabled"]


@pytest.mark.parametrize("change", ["url", "secret"])
def test_change_lets_no_second_deliverer_send_beside_the_first(
    listening: Listening, consumer: Consumer, other_consumer: Consumer, deliverers: Deliverers, change: str
) -> None:
    under_way, may_answer, at_once = threading.Event(), threading.Event(), list[str]()

    def respond(event: dict[str, Any]) -> tuple[int, dict[str, str]]:
        at_once.append(event["data"]["name"])
        under_way.set()
        may_answer.wait(2)
        return 204, {}

    consumer.respond = other_consumer.respond = respond
    publish_named(listening.home, "a", "b")
    deliverers()
    assert under_way.wait(60)
    if change == "url":
        assert listening.home.api.patch(listening.path, {"url": other_consumer.url}).status_code == 200
    else:
        assert listening.home.api.post(f"{listening.path}/secret").status_code == 200
    # The change revokes the lease and does not free it.
    deliver()
    seen = len(at_once) if not consumer.seen else 1  # on a slow machine the exchange may have ended
    may_answer.set()
    assert seen == 1
    assert within(60, lambda: {message["status"] for message in listening.messages()} == {"delivered"})
    assert list(dict.fromkeys(firsts(consumer) + firsts(other_consumer))) == ["a", "b"]


def test_rotated_secret_applies_during_a_turn(listening: Listening, consumer: Consumer, deliverers: Deliverers) -> None:
    consumer.slowness = 0.05
    publish_named(listening.home, *range(40))
    deliverers()
    consumer.wait_for(5)
    newest = listening.home.api.post(f"{listening.path}/secret").json()["secret"]
    reached = len(consumer.seen) + 1
    consumer.wait_for(40)
    assert firsts(consumer) == [str(number) for number in range(40)]
    assert reached < 40
    assert all(verifies(seen, newest) for seen in consumer.seen[reached:])
    assert consumer.most_at_once == 1


def test_rotated_and_previous_secret_both_verify(listening: Listening, consumer: Consumer, settings: Any) -> None:
    answer = listening.home.api.post(f"{listening.path}/secret")
    assert answer.status_code == 200
    publish_named(listening.home, "a")
    deliver()
    assert verifies(consumer.seen[0], listening.secret)
    assert verifies(consumer.seen[0], answer.json()["secret"])
    settings.WEBHOOK_SECRET_OVERLAP_SECONDS = 0
    newest = listening.home.api.post(f"{listening.path}/secret").json()["secret"]
    publish_named(listening.home, "b")
    deliver()
    assert verifies(consumer.seen[1], newest)
    assert not verifies(consumer.seen[1], answer.json()["secret"])

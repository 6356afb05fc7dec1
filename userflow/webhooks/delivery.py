"""Sends one endpoint's messages, one after the other, and writes down what became of each.

No tenant is entered while a consumer is waited for: a tenant's connections are few, and a consumer takes its time.
"""

import random
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID, uuid4

import requests
import structlog
from django.conf import settings
from django.utils.timezone import now
from prometheus_client import Counter, Histogram

from identity_platform import outbound
from identity_platform.audit.writer import record_for_tenant
from identity_platform.outbound import GuardedSession, NotResolved, Reach, TargetRejected, TooSlow
from tenants.context import in_tenant, tenant_atomic
from userflow.events import wakeups
from userflow.events.models import WebhookEndpoint
from userflow.webhooks import notices, queue, signing
from userflow.webhooks.queue import Claim, Message

log = structlog.get_logger("identity.webhooks")
TRIES = Counter("identity_webhook_tries", "Webhook messages sent, by outcome.", ["outcome"])
SECONDS = Histogram("identity_webhook_seconds", "Time of a consumer's answer.", buckets=(0.05, 0.2, 1, 3, 10, 30))

# So much at once, then the next endpoint has its turn.
MOST_IN_A_TURN: Final = 200
TURN_SECONDS: Final = 20.0
PATIENCE_SECONDS: Final = 0.5
AGENT: Final = "identity-platform-webhooks/1"
GONE: Final = 410
ASKS_TO_WAIT: Final = (429, 503)


class Turn(StrEnum):
    """How a turn at an endpoint ended."""

    # Nothing is left, or what is left waits for its time.
    DONE = "done"
    # There is more to send at once.
    MORE = "more"
    # Somebody else holds it, or it is off.
    NOT_MINE = "not_mine"


def reach() -> Reach:
    """Where webhooks may go, by the settings."""
    return Reach.of(settings.WEBHOOK_ALLOWED_NETWORKS, plain_http=settings.WEBHOOK_PLAIN_HTTP)


def deliver(
    tenant_id: UUID,
    endpoint_id: UUID,
    *,
    ending: Callable[[], bool] = lambda: False,
    patience: float = PATIENCE_SECONDS,
) -> Turn:
    """Send what waits for the endpoint, for one turn; stops between two messages when told that the end has come.

    `patience` is how long it waits for transactions that may still put something before what is there.

    May be called for one endpoint by many processes at the same time: one of them sends. Killed anywhere, what was not
    noted is sent again, with the same `webhook-id`. Rejects as `in_tenant` does.
    """
    with in_tenant(tenant_id):
        held = queue.claim(endpoint_id, uuid4())
        if held is None:
            return Turn.NOT_MINE
        secrets = [signing.open_secret(s, tenant_id=tenant_id, endpoint_id=endpoint_id) for s in held.secrets_sealed]
    try:
        with GuardedSession(reach()) as session:
            return _turn(tenant_id, held, secrets, session, ending, patience)
    finally:
        with in_tenant(tenant_id):
            queue.release(held)


def _turn(
    tenant_id: UUID,
    held: Claim,
    secrets: list[str],
    session: GuardedSession,
    ending: Callable[[], bool],
    patience: float,
) -> Turn:
    began = renewed = time.monotonic()
    highest = _certain(tenant_id, held.endpoint_id, patience)
    if highest is None:
        # A long transaction of the tenant is under way; ids below may still appear.
        wakeups.wake(tenant_id, seconds=1.0)
        return Turn.DONE
    sent = 0
    while not ending():
        with in_tenant(tenant_id):
            messages = queue.next_messages(held.endpoint_id, highest)
        if not messages:
            # What came meanwhile is above the mark, and whoever wrote it has left a hint or is seen at the next look.
            return Turn.MORE if sent else Turn.DONE
        for message in messages:
            if ending():
                return Turn.MORE
            if message.wait_seconds > 0:
                wakeups.wake(tenant_id, seconds=message.wait_seconds)
                return Turn.DONE
            if time.monotonic() - renewed > queue.LATE_SECONDS:
                return Turn.MORE
            turn = _send(tenant_id, held, message, secrets, session)
            if turn is not Turn.MORE:
                return turn
            renewed = time.monotonic()
            sent += 1
        if sent >= MOST_IN_A_TURN or time.monotonic() - began > TURN_SECONDS:
            return Turn.MORE
    return Turn.MORE


def _certain(tenant_id: UUID, endpoint_id: UUID, patience: float) -> int | None:
    """Up to which id nothing can appear any more; None when that is not certain soon."""
    with in_tenant(tenant_id):
        highest, writers = queue.horizon(endpoint_id)
    gives_up = time.monotonic() + patience
    while writers:
        with in_tenant(tenant_id):
            if queue.have_ended(writers):
                break
        if time.monotonic() > gives_up:
            return None
        time.sleep(0.01)
    return highest


def _send(tenant_id: UUID, held: Claim, message: Message, secrets: list[str], session: GuardedSession) -> Turn:
    """Try one message and note the outcome; gives MORE when the next one may follow, else how the turn ends."""
    status, error, asked_to_wait = _exchange(held.url, message, secrets, session)
    if status is not None and 200 <= status < 300:
        with in_tenant(tenant_id):
            goes_on = queue.taken(held, message, status)
        TRIES.labels("delivered").inc()
        return Turn.MORE if goes_on else Turn.NOT_MINE
    again = _next_try(message, asked_to_wait)
    with in_tenant(tenant_id), tenant_atomic():
        failing_since = queue.failed(held, message, status, error, again=again)
        off = failing_since is not None and _switched_off(held.endpoint_id, status, failing_since)
    if failing_since is None:
        # The endpoint has another address or secret, somebody else holds it, or it was removed.
        TRIES.labels("failed").inc()
        return Turn.NOT_MINE
    TRIES.labels("failed" if again is not None else "dead").inc()
    log.info("webhook_not_taken", endpoint_id=str(held.endpoint_id), message_id=message.message_id, error=error)
    if again is not None and not off:
        wakeups.wake(tenant_id, seconds=again)
    # Behind one that was given up the next has its turn; it may be the only one that the consumer cannot take.
    return Turn.MORE if again is None and not off else Turn.DONE


def _exchange(
    url: str, message: Message, secrets: list[str], session: GuardedSession
) -> tuple[int | None, str, float | None]:
    """POST the message; gives the status or None, what went wrong, and for how long the consumer asked to be left alone."""
    headers = signing.headers(
        message_id=message.message_id, timestamp=int(time.time()), body=message.body, secrets=secrets
    ) | {"Content-Type": "application/json", "User-Agent": AGENT}
    began = time.monotonic()
    try:
        answer = outbound.post(
            session, url, body=message.body, headers=headers, seconds=settings.WEBHOOK_TIMEOUT_SECONDS
        )
    except NotResolved:
        return None, "name not resolved", None
    except TargetRejected:
        return None, "address not allowed", None
    except (TooSlow, requests.Timeout):
        return None, "no answer in time", None
    except (requests.exceptions.SSLError, ssl.SSLError):
        return None, "TLS failed", None
    except (requests.RequestException, OSError):
        return None, "connection failed", None
    finally:
        SECONDS.observe(time.monotonic() - began)
    wait = _retry_after(answer.headers.get("Retry-After")) if answer.status in ASKS_TO_WAIT else None
    return answer.status, f"status {answer.status}", wait


def _retry_after(stated: str | None) -> float | None:
    """Seconds (RFC 9110 section 10.2.3); a date is rare here and is taken as its distance from now."""
    if stated is None:
        return None
    text = stated.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = datetime.strptime(text, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    except ValueError:
        return None
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _next_try(message: Message, asked_to_wait: float | None) -> float | None:
    """In how many seconds the message is tried again; None when its time is over.

    Threefold each time, with a jitter of a fifth so that consumers that come back are not met by everybody at once. The
    last try is at the end of the message's time, whatever the step would have been.
    """
    left = settings.WEBHOOK_RETRY_SECONDS - message.age_seconds
    if left <= 0:
        return None
    step = min(
        settings.WEBHOOK_RETRY_FIRST_SECONDS * 3.0 ** min(message.attempts, 20), settings.WEBHOOK_RETRY_LONGEST_SECONDS
    )
    step *= random.uniform(0.8, 1.2)  # noqa: S311  # it spreads load, nothing more
    return max(0.1, min(max(step, asked_to_wait or 0.0), left))


def _switched_off(endpoint_id: UUID, status: int | None, failing_since: datetime) -> bool:
    """Switch an endpoint off that says it is gone, or that has taken nothing for days; tell the tenant's admins."""
    if status == GONE:
        reason = WebhookEndpoint.GONE
    elif now() - failing_since > timedelta(days=settings.WEBHOOK_FAILING_DAYS):
        reason = WebhookEndpoint.FAILING
    else:
        return False
    if queue.switch_off(endpoint_id, reason):
        record_for_tenant("webhook.disabled", target=("webhook_endpoint", endpoint_id), details={"reason": reason})
        notices.tell_admins(endpoint_id, reason)
    return True

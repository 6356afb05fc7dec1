"""Send the messages of one endpoint in their order and record the outcome of each.

No tenant is entered during the HTTP exchange: a tenant has few database connections, and a consumer may be slow.
"""

import random
import ssl
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

import requests
import structlog
from django.conf import settings
from django.utils.timezone import now
from prometheus_client import Counter, Histogram

from identity_platform import outbound
from identity_platform.audit.writer import record_for_tenant
from identity_platform.outbound import GuardedSession, NotResolved, Reach, TargetRejected, TooSlow, retry_after_seconds
from tenants.context import current_tenant, in_tenant, tenant_atomic
from tenants.target import TENANT_ALIAS
from userflow import mail
from userflow.accounts.models import AdminUser
from userflow.accounts.permissions_catalogue import TENANT_ADMIN
from userflow.events import wakeups
from userflow.events.models import WebhookEndpoint
from userflow.webhooks import queue, signing
from userflow.webhooks.queue import Lease, Message

log = structlog.get_logger("identity.webhooks")
TRIES = Counter("identity_webhook_tries", "Webhook messages sent, by outcome.", ["outcome"])
SECONDS = Histogram("identity_webhook_seconds", "Response times of consumers.", buckets=(0.05, 0.2, 1, 3, 10, 30))

# After so many messages or seconds the thread serves the next endpoint.
MOST_IN_A_TURN: Final = 200
TURN_SECONDS: Final = 20.0
# How long to wait for transactions that may still add a message before the visible ones.
WRITERS_WAIT_SECONDS: Final = 0.5
AGENT: Final = "identity-platform-webhooks/1"
GONE: Final = 410
ASKS_TO_WAIT: Final = (429, 503)


class Turn(StrEnum):
    """How a turn at an endpoint ended."""

    # No message is due.
    DONE = "done"
    # More messages are due now.
    MORE = "more"
    # Another deliverer holds the endpoint, or it is disabled.
    NOT_MINE = "not_mine"


def reach() -> Reach:
    """Return where webhooks may be sent, from the settings."""
    return Reach.of(settings.WEBHOOK_ALLOWED_NETWORKS, plain_http=settings.WEBHOOK_PLAIN_HTTP)


def deliver(
    tenant_id: UUID,
    endpoint_id: UUID,
    *,
    ending: Callable[[], bool] = lambda: False,
    writers_wait: float = WRITERS_WAIT_SECONDS,
) -> Turn:
    """Send the due messages of the endpoint for one turn; stop between two messages when `ending` returns True.

    `writers_wait` is the time in seconds to wait for transactions that may still add an earlier message. Several processes
    may call this for one endpoint at the same time: one of them sends. After a kill, a message whose outcome was not
    recorded is sent again with the same `webhook-id`. Raises what `in_tenant` raises.
    """
    with in_tenant(tenant_id):
        lease = queue.acquire(endpoint_id)
        if lease is None:
            return Turn.NOT_MINE
        secrets = [signing.open_secret(s, tenant_id=tenant_id, endpoint_id=endpoint_id) for s in lease.secrets_sealed]
    try:
        with GuardedSession(reach()) as session:
            return _turn(tenant_id, lease, secrets, session, ending, writers_wait)
    finally:
        with in_tenant(tenant_id):
            queue.release(lease)


def _turn(
    tenant_id: UUID,
    lease: Lease,
    secrets: list[str],
    session: GuardedSession,
    ending: Callable[[], bool],
    writers_wait: float,
) -> Turn:
    began = renewed = time.monotonic()
    highest = _final_id(tenant_id, lease.endpoint_id, writers_wait)
    if highest is None:
        # A long transaction of the tenant is open and may still add a lower id.
        wakeups.wake(tenant_id, seconds=1.0)
        return Turn.DONE
    sent = 0
    while not ending():
        with in_tenant(tenant_id):
            messages = queue.next_messages(lease.endpoint_id, highest)
        if not messages:
            # Newer messages have higher ids; their writers have left a wake-up, or the next turn sees them.
            return Turn.MORE if sent else Turn.DONE
        for message in messages:
            if ending():
                return Turn.MORE
            if message.wait_seconds > 0:
                wakeups.wake(tenant_id, seconds=message.wait_seconds)
                return Turn.DONE
            if time.monotonic() - renewed > queue.LATE_SECONDS:
                return Turn.MORE
            turn = _send(tenant_id, lease, message, secrets, session)
            if turn is not Turn.MORE:
                return turn
            renewed = time.monotonic()
            sent += 1
        if sent >= MOST_IN_A_TURN or time.monotonic() - began > TURN_SECONDS:
            return Turn.MORE
    return Turn.MORE


def _final_id(tenant_id: UUID, endpoint_id: UUID, writers_wait: float) -> int | None:
    """Return the id up to which no message can be added any more, or None if that is uncertain after `writers_wait`."""
    with in_tenant(tenant_id):
        highest, writers = queue.highest_id_and_writers(endpoint_id)
    gives_up = time.monotonic() + writers_wait
    while writers:
        with in_tenant(tenant_id):
            if not queue.any_still_writing(writers):
                break
        if time.monotonic() > gives_up:
            return None
        time.sleep(0.01)
    return highest


def _send(tenant_id: UUID, lease: Lease, message: Message, secrets: list[str], session: GuardedSession) -> Turn:
    """Send one message and record the outcome; return MORE if the next one may follow, else how the turn ends."""
    status, error, asked_to_wait = _exchange(lease.url, message, secrets, session)
    if status is not None and 200 <= status < 300:
        with in_tenant(tenant_id):
            goes_on = queue.record_delivered(lease, message, status)
        TRIES.labels("delivered").inc()
        return Turn.MORE if goes_on else Turn.NOT_MINE
    again = _next_try(message, asked_to_wait)
    with in_tenant(tenant_id), tenant_atomic():
        failing_since = queue.record_failure(lease, message, status, error, again=again)
        disabled = failing_since is not None and _disable_if_gone(lease.endpoint_id, status, failing_since)
    if failing_since is None:
        # The endpoint was changed or deleted, or another deliverer holds it.
        TRIES.labels("failed").inc()
        return Turn.NOT_MINE
    TRIES.labels("failed" if again is not None else "dead").inc()
    log.info("webhook_not_taken", endpoint_id=str(lease.endpoint_id), message_id=message.message_id, error=error)
    if again is not None and not disabled:
        wakeups.wake(tenant_id, seconds=again)
    # After a dead letter the next message is sent: the dead one may be the only one that the consumer rejects.
    return Turn.MORE if again is None and not disabled else Turn.DONE


def _exchange(
    url: str, message: Message, secrets: list[str], session: GuardedSession
) -> tuple[int | None, str, float | None]:
    """POST the message; return the status or None, the error, and the seconds of the consumer's Retry-After."""
    headers = signing.headers(
        message_id=message.message_id, timestamp=int(time.time()), body=message.body, secrets=secrets
    ) | {"Content-Type": "application/json", "User-Agent": AGENT}
    began = time.monotonic()
    try:
        response = outbound.post(
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
    wait = retry_after_seconds(response.headers.get("Retry-After")) if response.status in ASKS_TO_WAIT else None
    return response.status, f"status {response.status}", wait


def _next_try(message: Message, asked_to_wait: float | None) -> float | None:
    """Return after how many seconds to retry, or None if the retry period of the message is over.

    The pause triples each time. A jitter of a fifth keeps a consumer that recovers from getting all messages at once. The
    last try is at the end of the retry period.
    """
    left = settings.WEBHOOK_RETRY_SECONDS - message.age_seconds
    if left <= 0:
        return None
    step = min(
        settings.WEBHOOK_RETRY_FIRST_SECONDS * 3.0 ** min(message.attempts, 20), settings.WEBHOOK_RETRY_LONGEST_SECONDS
    )
    step *= random.uniform(0.8, 1.2)  # noqa: S311  # it only spreads load
    return max(0.1, min(max(step, asked_to_wait or 0.0), left))


def _disable_if_gone(endpoint_id: UUID, status: int | None, failing_since: datetime) -> bool:
    """Disable an endpoint that returns 410 or has failed for days, and notify the tenant's admins."""
    if status == GONE:
        reason = WebhookEndpoint.GONE
    elif now() - failing_since > timedelta(days=settings.WEBHOOK_FAILING_DAYS):
        reason = WebhookEndpoint.FAILING
    else:
        return False
    if queue.disable(endpoint_id, reason):
        record_for_tenant("webhook.disabled", target=("webhook_endpoint", endpoint_id), details={"reason": reason})
        notify_admins(endpoint_id, reason)
    return True


MOST_RECIPIENTS = 20


def notify_admins(endpoint_id: UUID, reason: str) -> None:
    """Mail the admins of the entered tenant after the commit: the endpoint was disabled."""
    tenant = current_tenant()
    endpoint = WebhookEndpoint.objects.get(pk=endpoint_id)
    facts = {
        "tenant": tenant.name,
        "url": endpoint.url.partition("?")[0],
        "gone": reason == WebhookEndpoint.GONE,
        "since": endpoint.failing_since,
        "endpoint_id": endpoint_id,
    }
    admins = AdminUser.objects.filter(tenant_id=tenant.tenant_id, active=True, roles__name=TENANT_ADMIN)
    for address in admins.order_by("pk").values_list("email", flat=True)[:MOST_RECIPIENTS]:
        mail.tell("webhook_disabled", to=address, facts=facts, after=TENANT_ALIAS, to_admin=True)

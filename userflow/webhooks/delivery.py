"""Send the messages of one endpoint in their order and record the outcome of each.

No tenant is entered during the HTTP exchange: a tenant has few database connections, and a consumer may be slow.
"""

import random
import ssl
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
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
from identity_platform.outbound import (
    GuardedSession,
    NotResolved,
    OutboundResponse,
    Reach,
    TargetRejected,
    TooSlow,
    retry_after_seconds,
)
from tenants.entering.context import current_tenant, in_tenant, tenant_atomic
from tenants.entering.lookup import TenantContext
from tenants.entering.target import TENANT_ALIAS
from tenants.states import Purpose
from userflow.accounts.models import AdminUser
from userflow.accounts.permissions_catalogue import TENANT_ADMIN
from userflow.events import wakeups
from userflow.events.models import RESPONSE_CHARACTERS, Attempt, WebhookEndpoint
from userflow.mail.queue import queue_mail
from userflow.sessions import client_keys
from userflow.webhooks import logout_tokens, queue, signing
from userflow.webhooks.queue import Lease, Message

log = structlog.get_logger("identity.webhooks")
TRIES = Counter("identity_webhook_tries", "Webhook messages sent, by outcome.", ["outcome"])
# A counter that appears with its first event has never increased for Prometheus, and that event may be the only one.
for _outcome in ("delivered", "failed", "dead"):
    TRIES.labels(_outcome)
SECONDS = Histogram("identity_webhook_seconds", "Response times of consumers.", buckets=(0.05, 0.2, 1, 3, 10, 30))

# After so many messages or seconds the thread serves the next endpoint.
MOST_IN_A_TURN: Final = 200
TURN_SECONDS: Final = 20.0
# An application that did not respond is tried once in this time.
APPLICATION_PAUSE_SECONDS: Final = 10.0
# How long to wait for transactions that may still add a message before the visible ones.
WRITERS_WAIT_SECONDS: Final = 0.5
AGENT: Final = "identity-platform-webhooks/1"
CONTENT_TYPE: Final = "application/json"
GONE: Final = 410
ASKS_TO_WAIT: Final = (429, 503)
NO_ADDRESS: Final = "no address"


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


@dataclass(frozen=True, slots=True)
class LeasedEndpoint:
    """An endpoint that this deliverer holds, and what it needs to send there."""

    tenant: TenantContext
    lease: Lease
    secrets: tuple[str, ...]
    session: GuardedSession

    def entered(self) -> AbstractContextManager[TenantContext]:
        """Enter the tenant to record an outcome; for logout tokens also a suspended one."""
        return in_tenant(self.tenant.tenant_id, Purpose.WRITE if self.lease.client_id is None else Purpose.SIGN_OUT)

    def request(self, message: Message) -> tuple[str, bytes, dict[str, str]]:
        """Return the address, the body and the headers. The address is empty if the application has none any more."""
        if self.lease.client_id is not None:
            return logout_tokens.request_of(message, tenant=self.tenant, client_id=self.lease.client_id)
        signed = signing.headers(
            message_id=message.message_id, timestamp=int(time.time()), body=message.body, secrets=self.secrets
        )
        return self.lease.url, message.body, {**signed, "Content-Type": CONTENT_TYPE}


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
    with in_tenant(tenant_id, Purpose.SIGN_OUT) as tenant:
        lease = queue.acquire(endpoint_id)
        if lease is None:
            return Turn.NOT_MINE
        sealed = lease.secrets_sealed if lease.client_id is None else ()
        secrets = tuple(signing.open_secret(s, tenant_id=tenant_id, endpoint_id=endpoint_id) for s in sealed)
    allowed = reach() if lease.client_id is None else client_keys.reach()
    with GuardedSession(allowed, authorities=tenant.authorities) as session:
        leased_endpoint = LeasedEndpoint(tenant, lease, secrets, session)
        try:
            return _turn(leased_endpoint, ending, writers_wait)
        finally:
            with leased_endpoint.entered():
                queue.release(lease)


def _turn(leased_endpoint: LeasedEndpoint, ending: Callable[[], bool], writers_wait: float) -> Turn:
    began = renewed = time.monotonic()
    tenant_id, highest = leased_endpoint.tenant.tenant_id, 0
    if leased_endpoint.lease.client_id is None:
        final_id = _final_id(tenant_id, leased_endpoint.lease.endpoint_id, writers_wait)
        if final_id is None:
            # A long transaction of the tenant is open and may still add a lower id.
            wakeups.wake(tenant_id, seconds=1.0)
            return Turn.DONE
        highest = final_id
    sent = 0
    while not ending():
        with leased_endpoint.entered():
            messages = queue.next_messages(leased_endpoint.lease, highest)
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
            turn = _send(leased_endpoint, message)
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


def _send(leased_endpoint: LeasedEndpoint, message: Message) -> Turn:
    """Send one message and record the outcome; return MORE if the next one may follow, else how the turn ends."""
    lease, tells_logout = leased_endpoint.lease, leased_endpoint.lease.client_id is not None
    attempt, asked_to_wait = _attempt(leased_endpoint, message)
    status, error = attempt["status"], attempt["error"]
    ids = {"endpoint_id": str(lease.endpoint_id), "message_id": message.message_id}
    log.debug("webhook_attempt", **ids, status=status, error=error, ms=attempt["milliseconds"])
    if not error:
        with leased_endpoint.entered():
            goes_on = queue.record_delivered(lease, message, attempt)
        TRIES.labels("delivered").inc()
        return Turn.MORE if goes_on else Turn.NOT_MINE
    final = tells_logout and (status in logout_tokens.FINAL or error == NO_ADDRESS)
    again = None if final else _next_try(message, asked_to_wait)
    # An application that responds gets the next token. One that does not respond must not keep a thread busy.
    pause = None
    if tells_logout and not final and (status is None or status in ASKS_TO_WAIT):
        pause = max(APPLICATION_PAUSE_SECONDS, min(asked_to_wait or 0.0, again or 0.0))
    with leased_endpoint.entered(), tenant_atomic():
        failing_since = queue.record_failure(lease, message, attempt, again=again, pause=pause)
        disabled = (
            failing_since is not None
            and not tells_logout
            and _disable_if_gone(lease.endpoint_id, status, failing_since)
        )
    if failing_since is None:
        # The endpoint was changed or deleted, or another deliverer holds it.
        TRIES.labels("failed").inc()
        return Turn.NOT_MINE
    TRIES.labels("failed" if again is not None else "dead").inc()
    log.info("webhook_not_taken", **ids, error=error)
    if again is not None and not disabled:
        # After a pause other tokens of the application may be due before the retry of this one.
        wakeups.wake(leased_endpoint.tenant.tenant_id, seconds=again if pause is None else min(again, pause))
    # After a dead letter the next message is sent: the dead one may be the only one that the consumer rejects.
    goes_on = (again is None or tells_logout) and pause is None and not disabled
    return Turn.MORE if goes_on else Turn.DONE


def _attempt(leased_endpoint: LeasedEndpoint, message: Message) -> tuple[Attempt, float | None]:
    """POST the message; return the attempt, without an error if it was accepted, and the seconds of a Retry-After."""
    at, began = now(), time.monotonic()
    response, error = _exchange(leased_endpoint, message)
    seconds = time.monotonic() - began
    attempt = Attempt(
        at=at.isoformat(timespec="seconds"), milliseconds=round(seconds * 1000), status=None, error=error, response=""
    )
    if response is None:
        return attempt, None
    attempt["status"] = response.status
    attempt["error"] = "" if 200 <= response.status < 300 else f"status {response.status}"
    attempt["response"] = _beginning(response.beginning)
    wait = retry_after_seconds(response.headers.get("Retry-After")) if response.status in ASKS_TO_WAIT else None
    return attempt, wait


def _beginning(body: bytes) -> str:
    """Return the beginning of a response as text that PostgreSQL takes in JSON: without NUL."""
    return body.decode(errors="replace")[:RESPONSE_CHARACTERS].replace("\0", "\N{REPLACEMENT CHARACTER}")


def _exchange(leased_endpoint: LeasedEndpoint, message: Message) -> tuple[OutboundResponse | None, str]:
    """POST the message; return the response, or None and why there is none."""
    url, body, headers = leased_endpoint.request(message)
    if not url:
        return None, NO_ADDRESS
    headers["User-Agent"] = AGENT
    began = time.monotonic()
    try:
        return outbound.post(
            leased_endpoint.session, url, body=body, headers=headers, seconds=settings.WEBHOOK_TIMEOUT_SECONDS
        ), ""
    except NotResolved:
        return None, "name not resolved"
    except TargetRejected:
        return None, "address not allowed"
    except (TooSlow, requests.Timeout):
        return None, "no answer in time"
    except (requests.exceptions.SSLError, ssl.SSLError):
        return None, "TLS failed"
    except (requests.RequestException, OSError):
        return None, "connection failed"
    finally:
        SECONDS.observe(time.monotonic() - began)


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
        queue_mail("webhook_disabled", to=address, facts=facts, after=TENANT_ALIAS, to_admin=True)

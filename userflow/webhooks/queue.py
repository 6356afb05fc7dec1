"""The order of a tenant's messages, and the lease that lets one deliverer at a time send them.

Call these functions with the tenant entered.

Order: messages are sent by id. An id is drawn while the writing transaction holds its row locks, so of two changes to the
same rows the later one has the higher id. But a transaction with a low id may commit after one with a high id, and must not
be overtaken. A deliverer therefore reads the highest visible id first and then the transactions that are writing to the
outbox; each holds a lock on the table from before its first id until its end. After those have ended, no id up to the
highest can appear. Transaction numbers would tell the same, but they belong to the whole server: a long transaction of
another tenant would hold up this tenant's messages.

Lease: a lease in the endpoint's row, taken by a conditional UPDATE and renewed with every result, keeps two deliverers from
sending one endpoint's messages. The lease of a killed deliverer runs out. A lease lasts longer than the longest exchange, so
the next holder knows that the last exchange has ended. A change of the address or the secret revokes the lease: it still
keeps other deliverers out, but its holder notices and stops. Times are the database's, as clocks of machines differ.

Logout tokens do not depend on each other: those that are due are sent, new ones first, and an application that gives no
answer is paused for some seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4, uuid5

from django.conf import settings
from django.db.models import Case, F, OuterRef, Q, QuerySet, Subquery, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce, Now
from django.utils.timezone import now

from identity_platform.postgresql.statements import fetch_row
from identity_platform.postgresql.transactions import advisory_lock
from tenants.entering.context import current_tenant, tenant_atomic
from tenants.entering.target import TENANT_ALIAS
from tenants.states import Purpose
from userflow.events import outbox
from userflow.events.models import (
    ATTEMPTS_KEPT,
    DEAD,
    DELIVERED,
    PENDING,
    Attempt,
    WebhookEndpoint,
    WebhookMessage,
)

BATCH = 20
# A lease that was renewed longer ago than this is too old for another exchange.
LATE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class PendingEndpoint:
    """An endpoint with pending messages: seconds until the first is due, seconds until another lease ends.

    `url` is empty for an application, whose address is that of its client.
    """

    endpoint_id: UUID
    url: str
    seconds: float
    held_seconds: float


@dataclass(frozen=True, slots=True)
class Lease:
    """An endpoint that this deliverer holds. With a `client_id` it is an application that receives logout tokens."""

    endpoint_id: UUID
    id: UUID
    url: str
    secrets_sealed: tuple[bytes, ...]
    client_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be sent. `age_seconds` is its time in the queue, `wait_seconds` the time until the next try."""

    id: int
    message_id: str
    body: bytes
    attempts: int
    age_seconds: float
    wait_seconds: float
    log: Sequence[Attempt] = ()


def lease_seconds() -> int:
    """Return how long a lease lasts: longer than an exchange, from the name look-up to the last byte, and LATE_SECONDS."""
    return int(settings.WEBHOOK_TIMEOUT_SECONDS) + 12


def _lease_end() -> Combinable:
    return Now() + timedelta(seconds=lease_seconds())


def pending_endpoints() -> tuple[bool, Sequence[PendingEndpoint]]:
    """Return whether the tenant has endpoints at all, and its enabled endpoints with pending messages."""
    pending = WebhookMessage.objects.filter(endpoint_id=OuterRef("pk"), status=PENDING).values("next_attempt_at")
    due = Case(
        When(_served() & Q(client_id=None), then=Subquery(pending.order_by("pk")[:1])),
        When(_served(), then=Subquery(pending.order_by("next_attempt_at")[:1])),
    )
    rows = list(WebhookEndpoint.objects.values_list("pk", "url", "leased_until", "paused_until", due, Now()))
    endpoints = [
        PendingEndpoint(
            endpoint_id,
            url,
            max(0.0, (max(at, paused_until or at) - read_at).total_seconds()),
            max(0.0, (leased_until - read_at).total_seconds()) if leased_until else 0.0,
        )
        for endpoint_id, url, leased_until, paused_until, at, read_at in rows
        if at is not None
    ]
    return bool(rows), endpoints


def _served() -> Q:
    """Return the condition of endpoints that get messages now: of a suspended tenant applications, which get logout tokens."""
    enabled = Q(enabled=True)
    return enabled if current_tenant().allows(Purpose.WRITE) else enabled & Q(client_id__isnull=False)


def acquire(endpoint_id: UUID) -> Lease | None:
    """Take the endpoint's lease; return None if another deliverer holds it, or the endpoint is disabled or paused."""
    free = Q(leased_until=None) | Q(leased_until__lt=Now())
    ready = Q(paused_until=None) | Q(paused_until__lte=Now())
    lease_id = uuid4()
    with tenant_atomic():
        endpoint = WebhookEndpoint.objects.filter(pk=endpoint_id)
        if not endpoint.filter(free, ready, _served()).update(lease=lease_id, leased_until=_lease_end()):
            return None
        previous = Case(When(previous_secret_until__gt=Now(), then=F("previous_secret_sealed")))
        url, client_id, *sealed = endpoint.values_list("url", "client_id", "secret_sealed", previous).get()
    return Lease(endpoint_id, lease_id, url, tuple(bytes(secret) for secret in sealed if secret is not None), client_id)


def revoked(lease: UUID | None) -> UUID | None:
    """Return the value for the endpoint's lease after a change that its holder must notice; save it with the change.

    The end of the lease stays, so no other deliverer sends beside the exchange under way; only the holder releases it
    early. Leases are random (version 4) and revoked ones derived (version 5): a second change keeps the first one's value.
    """
    return lease if lease is None or lease.version == 5 else uuid5(lease, "revoked")


def release(lease: Lease) -> None:
    """Give the lease back, also if it was revoked meanwhile."""
    rows = WebhookEndpoint.objects.filter(pk=lease.endpoint_id, lease__in=[lease.id, revoked(lease.id)])
    rows.update(lease=None, leased_until=None)


def next_messages(lease: Lease, highest: int) -> Sequence[Message]:
    """Return the next pending messages in their order, up to the id `highest`; of an application those that are due.

    Those of an application that were tried least come first: a new one does not wait for the retries of others.
    """
    pending = WebhookMessage.objects.filter(endpoint_id=lease.endpoint_id, status=PENDING)
    if lease.client_id is None:
        pending = pending.filter(pk__lte=highest).order_by("pk")
    else:
        pending = pending.filter(next_attempt_at__lte=Now()).order_by("attempts", "pk")
    rows = pending.values_list(
        "pk", "message_id", "body", "attempts", "queued_at", "next_attempt_at", "attempt_log", Now()
    )
    return [
        Message(
            pk,
            message_id,
            body.encode(),
            tries,
            (at - queued_at).total_seconds(),
            (next_attempt_at - at).total_seconds(),
            attempt_log,
        )
        for pk, message_id, body, tries, queued_at, next_attempt_at, attempt_log, at in rows[:BATCH]
    ]


def record_delivered(lease: Lease, message: Message, attempt: Attempt) -> bool:
    """Record a delivery. Return False if the endpoint is disabled or the lease is lost: the caller then stops."""
    with tenant_atomic():
        renewed_lease = _renew(lease, failing_since=None, paused_until=None, last_delivered_at=Now())
        recorded = _record_attempt(message, attempt, status=DELIVERED, settled_at=Now())
    return recorded and renewed_lease is not None and renewed_lease.enabled


def record_failure(
    lease: Lease, message: Message, attempt: Attempt, *, again: float | None, pause: float | None = None
) -> datetime | None:
    """Record a failed delivery. Retry after `again` seconds, or dead-letter the message if None. Call in `tenant_atomic`.

    Return since when every delivery to the endpoint has failed. Return None and record nothing if the lease is lost: the
    failure belongs to the address that the message was sent to, and the endpoint may have another by now. The endpoint gets
    nothing for `pause` seconds.
    """
    due = Now() + timedelta(seconds=again or 0.0)
    paused = {} if pause is None else {"paused_until": Now() + timedelta(seconds=pause)}
    renewed_lease = _renew(lease, failing_since=Coalesce("failing_since", Now()), **paused)
    if renewed_lease is None:
        return None
    if again is None:
        recorded = _record_attempt(message, attempt, status=DEAD, settled_at=Now())
    else:
        recorded = _record_attempt(message, attempt, next_attempt_at=due)
    return renewed_lease.failing_since if recorded else None


def _renew(lease: Lease, **changes: Combinable | None) -> WebhookEndpoint | None:
    rows = WebhookEndpoint.objects.filter(pk=lease.endpoint_id, lease=lease.id)
    if not rows.update(leased_until=_lease_end(), **changes):
        return None
    return rows.only("enabled", "failing_since").get()


def _record_attempt(message: Message, attempt: Attempt, **changes: Combinable | str) -> bool:
    rows = WebhookMessage.objects.filter(pk=message.id, status=PENDING)
    return bool(
        rows.update(
            attempts=F("attempts") + 1,
            last_status=attempt["status"],
            last_error=attempt["error"],
            # Only the holder of the lease adds to the log, so nothing was added since the message was read.
            attempt_log=[*message.log, attempt][-ATTEMPTS_KEPT:],
            **changes,
        )
    )


def queue_again(messages: "QuerySet[WebhookMessage]") -> int:
    """Let messages be sent at once, and be retried for as long as new ones; return how many."""
    moment = now()
    number = messages.update(status=PENDING, attempts=0, queued_at=moment, next_attempt_at=moment, settled_at=None)
    outbox.wake_after_commit()
    return number


def disable(endpoint_id: UUID, reason: str) -> bool:
    """Disable the endpoint; return False if it was disabled already. Pending messages wait until it is enabled again."""
    rows = WebhookEndpoint.objects.filter(pk=endpoint_id, enabled=True)
    return bool(rows.update(enabled=False, disabled_reason=reason, lease=None, leased_until=None))


ENDPOINTS_LOCK = 7_215_020
_WRITERS = """
    FROM pg_locks
    WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
        AND relation = 'userflow_webhookmessage'::regclass AND pid IS DISTINCT FROM pg_backend_pid()
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_HIGHEST_ID_AND_WRITERS = f"""
SELECT coalesce(max(id), 0), ARRAY(SELECT virtualtransaction {_WRITERS})
FROM userflow_webhookmessage WHERE endpoint_id = %s AND status = 'pending'
"""
_STILL_WRITING = f"SELECT EXISTS (SELECT {_WRITERS} AND virtualtransaction = ANY(%s))"


def lock_endpoints() -> None:
    """Let one transaction at a time create an endpoint of the tenant."""
    advisory_lock(TENANT_ALIAS, ENDPOINTS_LOCK)


def highest_id_and_writers(endpoint_id: UUID) -> tuple[int, list[str]]:
    """Return the highest pending id that is visible now, and the transactions that may still add a lower one."""
    # The snapshot is taken before the locks are read, so a writer that ends in between is seen by the next statement.
    highest, writers = fetch_row(TENANT_ALIAS, _HIGHEST_ID_AND_WRITERS, [endpoint_id])
    return highest, list(writers)


def any_still_writing(writers: list[str]) -> bool:
    """Return whether one of these transactions is still open."""
    return bool(fetch_row(TENANT_ALIAS, _STILL_WRITING, [writers])[0])

"""The order of a tenant's messages and who may send them: statements on the tenant's database, with the tenant entered.

Order. Messages go out by their ids. An id is drawn while the deed holds its locks, so of two deeds on the same rows the
one that came later has the higher id. But a transaction with a low id may commit after one with a high id; sent at once,
the high one would overtake it. So a deliverer takes note of the highest id it sees and, after that, of the transactions
that are writing to the outbox: each holds the table's lock from before it draws its first id until it is over, and what
it has written can be seen before the lock is let go. Once those have ended, no id up to the highest can appear any more.
Transaction numbers would tell the same, but they are the whole server's: every other tenant's long transaction would
hold this one's messages up.

One sender for each endpoint. A lease in the endpoint's row, taken by a conditional UPDATE and renewed with every result,
keeps two deliverers from sending the same endpoint's messages; when its holder was killed it runs out. A lease is longer
than the longest exchange, so whoever takes it over knows that the last one has ended. When the address or the secret changes,
the lease is revoked: it still keeps others out, but its holder finds that it is not its own any more and stops.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid5

from django.conf import settings
from django.db import connections

from tenants.target import TENANT_ALIAS
from userflow.events.models import DEAD, DELIVERED, PENDING, WebhookEndpoint

BATCH = 20
# So long after its last renewal a lease is too old to begin another exchange: the process was held up.
LATE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """An endpoint that has something to send: in so many seconds, and whether somebody else holds it."""

    endpoint_id: UUID
    seconds: float
    held_seconds: float


@dataclass(frozen=True, slots=True)
class Claim:
    """An endpoint that this deliverer holds."""

    endpoint_id: UUID
    lease: UUID
    url: str
    secrets_sealed: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be sent now."""

    id: int
    message_id: str
    event: str
    body: bytes
    attempts: int
    # How long it has been in the queue, and how long it must still wait.
    age_seconds: float
    wait_seconds: float


def lease_seconds() -> int:
    """How long a lease lasts: longer than an exchange, from the name server to the last byte, and LATE_SECONDS."""
    return int(settings.WEBHOOK_TIMEOUT_SECONDS) + 12


def waiting() -> tuple[bool, Sequence[Waiting]]:
    """Whether the tenant has endpoints at all, and those that have something to send."""
    with connections[TENANT_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT e.id, extract(epoch FROM m.next_attempt_at - clock_timestamp())::float8,"
            " coalesce(extract(epoch FROM e.leased_until - clock_timestamp())::float8, 0)"
            " FROM userflow_webhookendpoint e LEFT JOIN LATERAL (SELECT next_attempt_at FROM userflow_webhookmessage"
            " WHERE endpoint_id = e.id AND status = 'pending' ORDER BY id LIMIT 1) m ON e.enabled"
        )
        rows = cursor.fetchall()
    found = [Waiting(row[0], max(0.0, row[1]), max(0.0, row[2])) for row in rows if row[1] is not None]
    return bool(rows), found


def claim(endpoint_id: UUID, lease: UUID) -> Claim | None:
    """Hold the endpoint; None when somebody else does, or when it is off."""
    with connections[TENANT_ALIAS].cursor() as cursor:
        cursor.execute(
            "UPDATE userflow_webhookendpoint SET lease = %s, leased_until = clock_timestamp() + %s * interval '1 second'"
            " WHERE id = %s AND enabled AND (leased_until IS NULL OR leased_until < clock_timestamp())"
            " RETURNING url, secret_sealed,"
            " CASE WHEN previous_secret_until > clock_timestamp() THEN previous_secret_sealed END",
            [lease, lease_seconds(), endpoint_id],
        )
        row = cursor.fetchone()
    if row is None:
        return None
    url, *sealed = row
    return Claim(endpoint_id, lease, url, tuple(bytes(secret) for secret in sealed if secret is not None))


def revoked(lease: UUID | None) -> UUID | None:
    """What the endpoint's lease becomes when what its holder knows of the endpoint is out of date; write it with the change.

    It keeps its time, so nobody sends beside the exchange that is under way; only the holder lets it go before. Leases are
    random (version 4), revoked ones derived (version 5), so that a second change leaves the first one's.
    """
    return lease if lease is None or lease.version == 5 else uuid5(lease, "revoked")


def release(held: Claim) -> None:
    """Let the endpoint go, also when the lease was revoked meanwhile."""
    with connections[TENANT_ALIAS].cursor() as cursor:
        cursor.execute(
            "UPDATE userflow_webhookendpoint SET lease = NULL, leased_until = NULL WHERE id = %s AND lease IN (%s, %s)",
            [held.endpoint_id, held.lease, revoked(held.lease)],
        )


_WRITERS = (
    "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND mode = 'RowExclusiveLock'"
    " AND relation = 'userflow_webhookmessage'::regclass AND granted AND pid IS DISTINCT FROM pg_backend_pid()"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def horizon(endpoint_id: UUID) -> tuple[int, list[str]]:
    """The highest id to be seen now, and the transactions that may own a lower one."""
    with connections[TENANT_ALIAS].cursor() as cursor:
        # The snapshot is older than the look at the locks: who ends in between is seen by the next statement.
        cursor.execute(
            "SELECT coalesce(max(id), 0), ARRAY(" + _WRITERS + ") FROM userflow_webhookmessage"
            " WHERE endpoint_id = %s AND status = 'pending'",
            [endpoint_id],
        )
        highest, writers = cursor.fetchone()
    return highest, list(writers)


def have_ended(writers: list[str]) -> bool:
    """Whether all of these transactions are over."""
    with connections[TENANT_ALIAS].cursor() as cursor:
        cursor.execute(f"SELECT NOT EXISTS ({_WRITERS} AND virtualtransaction = ANY(%s))", [writers])
        return bool(cursor.fetchone()[0])


def next_messages(endpoint_id: UUID, highest: int) -> Sequence[Message]:
    """The next messages in their order, up to that id."""
    with connections[TENANT_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT id, message_id, event, body, attempts,"
            " extract(epoch FROM clock_timestamp() - queued_at)::float8,"
            " extract(epoch FROM next_attempt_at - clock_timestamp())::float8"
            " FROM userflow_webhookmessage WHERE endpoint_id = %s AND status = 'pending' AND id <= %s"
            " ORDER BY id LIMIT %s",
            [endpoint_id, highest, BATCH],
        )
        rows = cursor.fetchall()
    return [Message(id_, message, event, body.encode(), *rest) for id_, message, event, body, *rest in rows]


_RESULT = (
    "WITH held AS (UPDATE userflow_webhookendpoint SET leased_until = clock_timestamp() + %s * interval '1 second',"
    " {endpoint} WHERE id = %s AND lease = %s RETURNING enabled, failing_since)"
    " UPDATE userflow_webhookmessage SET attempts = attempts + 1, last_status = %s, last_error = %s, {message}"
    " WHERE id = %s AND status = 'pending'{condition}"
    " RETURNING (SELECT enabled FROM held), (SELECT failing_since FROM held)"
)
_TAKEN = _RESULT.format(
    endpoint="failing_since = NULL, last_delivered_at = clock_timestamp()",
    message=f"status = '{DELIVERED}', settled_at = clock_timestamp()",
    condition="",
)
# A failure is the address's to which it was sent: it counts for nothing when the endpoint has another by now.
_STILL_HELD = " AND EXISTS (SELECT FROM held)"
_AGAIN = _RESULT.format(
    endpoint="failing_since = coalesce(failing_since, clock_timestamp())",
    message="next_attempt_at = clock_timestamp() + %s * interval '1 second'",
    condition=_STILL_HELD,
)
_GIVEN_UP = _RESULT.format(
    endpoint="failing_since = coalesce(failing_since, clock_timestamp())",
    message=f"status = '{DEAD}', settled_at = clock_timestamp()",
    condition=_STILL_HELD,
)


def taken(held: Claim, message: Message, status: int) -> bool:
    """The consumer has the message. False when the endpoint is off or somebody else's by now: then stop."""
    return bool(_note(_TAKEN, held, message, status, "")[0])


def failed(held: Claim, message: Message, status: int | None, error: str, *, again: float | None) -> datetime | None:
    """The consumer has it not: it is tried `again` in so many seconds, or given up where that is None.

    Gives since when the endpoint has taken nothing; None when the endpoint is not this deliverer's any more, and then
    nothing is noted.
    """
    if again is None:
        return _note(_GIVEN_UP, held, message, status, error)[1]
    return _note(_AGAIN, held, message, status, error, again)[1]


def _note(
    statement: str, held: Claim, message: Message, status: int | None, error: str, *more: float
) -> tuple[bool | None, datetime | None]:
    values = [lease_seconds(), held.endpoint_id, held.lease, status, error, *more, message.id]
    with connections[TENANT_ALIAS].cursor() as cursor:
        cursor.execute(statement, values)
        row = cursor.fetchone()
    return row or (None, None)


def switch_off(endpoint_id: UUID, reason: str) -> bool:
    """Switch the endpoint off; False when it was off. What waits stays in the queue and goes on when it is on again."""
    changed = WebhookEndpoint.objects.filter(pk=endpoint_id, enabled=True).update(
        enabled=False, disabled_reason=reason, lease=None, leased_until=None
    )
    return bool(changed)


__all__ = [
    "PENDING",
    "Claim",
    "Message",
    "Waiting",
    "claim",
    "failed",
    "have_ended",
    "horizon",
    "lease_seconds",
    "next_messages",
    "release",
    "revoked",
    "switch_off",
    "taken",
    "waiting",
]

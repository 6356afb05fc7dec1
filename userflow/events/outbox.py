"""Write messages to the tenant's webhook endpoints in the transaction of the change, so that none is lost or premature.

A tenant without endpoints pays nothing: the tenant context, which every request reads, says so. With endpoints a change
pays one statement, which writes a row for each endpoint that subscribes to the event.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from django.db import connections, transaction

from identity_platform.api.renderers import as_json
from identity_platform.postgresql.statements import execute, fetch_row
from identity_platform.postgresql.values import SqlValue
from tenants.entering.context import current_tenant
from tenants.entering.target import TENANT_ALIAS
from userflow.events import wakeups
from userflow.events.catalogue import filters_for

AT_ONCE = 500
_LISTENING = "e.enabled AND e.events ?| %s::text[]"
_INTO = "INSERT INTO userflow_webhookmessage (endpoint_id, message_id, event, subject_id, body)"
_INSERT = (
    f"{_INTO} SELECT e.id, %s::text, %s::text, %s::uuid, %s::text FROM userflow_webhookendpoint e WHERE {_LISTENING}"
)
_INSERT_EACH = (
    f"{_INTO} SELECT e.id, r.message_id, %s::text, r.subject_id, r.body"
    " FROM unnest(%s::text[], %s::uuid[], %s::text[]) WITH ORDINALITY AS r(message_id, subject_id, body, place),"
    f" userflow_webhookendpoint e WHERE {_LISTENING} ORDER BY r.place"
)
_INSERT_ONE = f"{_INTO} VALUES (%s, %s, %s, %s, %s)"
_HAS_SUBSCRIBERS = f"SELECT EXISTS (SELECT FROM userflow_webhookendpoint e WHERE {_LISTENING})"


def publish(event: str, data: Mapping[str, object]) -> None:
    """Write a message to each endpoint that subscribes to `event`. Call it inside `in_tenant` and `tenant_atomic`, after
    the change.

    `data` has `user_id` if the event is about a user, ids, names and facts, never a secret. `tenant_id` is added. An endpoint
    that is created at the same moment receives the next event.
    """
    if not current_tenant().has_webhooks:
        return
    message = _message(event, data)
    _write(_INSERT, [*message, list(filters_for(event))])


def publish_for_each(event: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Publish one message for each of `rows` (each as `data` of `publish`), in their order.

    For bulk writers: one statement for 500 rows, and one in all if no endpoint subscribes; `rows` is not consumed then, so it
    may be a generator. This reads the tenant's database and not the tenant context: a long run must not miss an endpoint
    that was created after its start.
    """
    subscribed_filters = list(filters_for(event))
    if not fetch_row(TENANT_ALIAS, _HAS_SUBSCRIBERS, [subscribed_filters])[0]:
        return
    batch: list[tuple[str, str, UUID | None, str]] = []
    for data in rows:
        batch.append(_message(event, data))
        if len(batch) == AT_ONCE:
            _write_each(event, batch, subscribed_filters)
            batch = []
    if batch:
        _write_each(event, batch, subscribed_filters)


def publish_to(endpoint_id: UUID, event: str, data: Mapping[str, object]) -> str:
    """Write a message to one endpoint, regardless of its events; return the `webhook-id`."""
    message_id, *rest = _message(event, data)
    _write(_INSERT_ONE, [endpoint_id, message_id, *rest])
    return message_id


def wake_after_commit() -> None:
    """Wake a deliverer for the entered tenant after the commit. Before it, the deliverer would see nothing."""
    transaction.on_commit(partial(wakeups.wake, current_tenant().tenant_id), using=TENANT_ALIAS, robust=True)


def forget(subjects: Sequence[UUID]) -> None:
    """Delete the messages about a user who is being erased, except those that are still to be sent to an enabled endpoint.

    A consumer that missed an event would go wrong; those messages are purged later. `subjects` are the user's id and the ids
    of invitations to the user's addresses. The tenant context is not asked: the first endpoint may be newer than it.
    """
    execute(
        TENANT_ALIAS,
        "DELETE FROM userflow_webhookmessage m WHERE m.subject_id = ANY(%s) AND (m.settled_at IS NOT NULL OR NOT EXISTS"
        " (SELECT FROM userflow_webhookendpoint e WHERE e.id = m.endpoint_id AND e.enabled))",
        [list(subjects)],
    )


def new_message_id() -> str:
    """Return a `webhook-id`: 128 random bits behind a readable prefix."""
    return f"msg_{secrets.token_urlsafe(16)}"


def _message(event: str, data: Mapping[str, object]) -> tuple[str, str, UUID | None, str]:
    subject = data.get("user_id") or data.get("invitation_id")
    moment = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    # Standard Webhooks, "Payload structure".
    payload = {"type": event, "timestamp": moment, "data": {"tenant_id": current_tenant().tenant_id, **data}}
    return new_message_id(), event, UUID(str(subject)) if subject else None, as_json(payload).decode()


def _write_each(event: str, batch: list[tuple[str, str, UUID | None, str]], subscribed_filters: list[str]) -> None:
    columns = [[message[column] for message in batch] for column in (0, 2, 3)]
    _write(_INSERT_EACH, [event, *columns, subscribed_filters])


def _write(statement: str, values: Sequence[SqlValue | list[str | UUID | None]]) -> None:
    if not connections[TENANT_ALIAS].in_atomic_block:
        raise RuntimeError("Events are published in the transaction of the change: call this inside tenant_atomic().")
    if execute(TENANT_ALIAS, statement, values):
        wake_after_commit()

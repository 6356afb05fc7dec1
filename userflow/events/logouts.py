"""Queue the logout tokens of applications' sessions in the transaction that ends them (Back-Channel Logout section 2.5).

The outbox of the webhooks carries them, and its deliverer signs and sends them (`userflow.webhooks.logout_tokens`).
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import QuerySet

from identity_platform.api.renderers import as_json
from userflow.events.models import WebhookEndpoint, WebhookMessage
from userflow.events.outbox import new_message_id

EVENT: Final = "logout"
AT_ONCE: Final = 1000


class Logout(NamedTuple):
    """A session of an application that gets a logout token."""

    client_id: UUID
    user_id: UUID
    session_id: UUID


def of_sessions(sessions: QuerySet[Any]) -> list[Logout]:
    """Return the logout tokens that are due when these sessions end."""
    due = sessions.filter(ended_at=None, backchannel_logout=True, client_id__isnull=False).order_by("pk")
    return [Logout(*row) for row in due.values_list("client_id", "user_id", "pk")]


def keep_address(client_id: UUID, *, address: str, algorithm: str) -> None:
    """Keep where the client's logout tokens are sent and how they are signed: they may still wait when it is deleted."""
    WebhookEndpoint.objects.filter(pk=client_id, client_id=client_id).update(url=address, signed_response_alg=algorithm)


def write(logouts: Iterable[Logout]) -> int:
    """Write the messages of these logout tokens to the outbox; return how many. Two statements, none without a logout.

    Call it in the transaction that ends the sessions, and then `outbox.wake_after_commit`.
    """
    messages = [
        WebhookMessage(
            endpoint_id=logout.client_id,
            message_id=new_message_id(),
            event=EVENT,
            subject_id=logout.user_id,
            body=as_json({"sub": logout.user_id, "sid": logout.session_id}).decode(),
        )
        for logout in logouts
    ]
    if messages:
        # In one order, so that two transactions that create the same endpoints cannot deadlock.
        clients = sorted({message.endpoint_id for message in messages})
        WebhookEndpoint.objects.bulk_create(
            [WebhookEndpoint(id=client_id, client_id=client_id, secret_sealed=b"") for client_id in clients],
            ignore_conflicts=True,
        )
        WebhookMessage.objects.bulk_create(messages, batch_size=AT_ONCE)
    return len(messages)

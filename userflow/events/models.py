"""Webhook endpoints of a tenant, and the outbox of messages to them, both in the tenant's own database.

Logout tokens take the same way: an application that receives them has an endpoint, with its `client_id`.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar, Final, TypedDict

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils import timezone

from identity_platform.restoring import AfterRestore, Journaled, NoAuthority, RestoredRow, Revocation
from tenants.models import TenantModel

PENDING, DELIVERED, DEAD = "pending", "delivered", "dead"
# The delivery log of a message: its newest attempts, each with the beginning of the response.
ATTEMPTS_KEPT: Final = 20
RESPONSE_CHARACTERS: Final = 500


class Attempt(TypedDict):
    """One attempt to deliver a message."""

    # ISO 8601, in UTC.
    at: str
    milliseconds: int
    # None without a response.
    status: int | None
    error: str
    # The beginning of the body.
    response: str


class WebhookEndpoint(TenantModel):
    """An address of the tenant's own systems that receives events."""

    # Why an endpoint is disabled.
    BY_ADMIN: ClassVar[str] = "admin"
    GONE: ClassVar[str] = "gone"
    FAILING: ClassVar[str] = "failing"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    url = models.CharField(max_length=2048)
    description = models.CharField(max_length=255, blank=True, default="")
    # Events, prefixes (`end_user.*`) or `*`: userflow.events.catalogue.
    events: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    enabled = models.BooleanField(default=True)
    disabled_reason = models.CharField(max_length=16, blank=True, default="")
    # The secret of the signatures, and for a while after a rotation the one before.
    secret_sealed = models.BinaryField(editable=False)
    previous_secret_sealed = models.BinaryField(null=True, editable=False)
    previous_secret_until = models.DateTimeField(null=True, editable=False)
    # A deliverer leases the endpoint, so that messages go out one after the other.
    lease = models.UUIDField(null=True, editable=False)
    leased_until = models.DateTimeField(null=True, editable=False)
    # When deliveries began to fail.
    failing_since = models.DateTimeField(null=True, editable=False)
    last_delivered_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    # Of an application that receives logout tokens; the id is the same. The address is that of the client, and there is no
    # secret: each token is signed when it is sent.
    client_id = models.UUIDField(null=True, editable=False)
    # Of such an application: no delivery is tried before, as the last one got no answer.
    paused_until = models.DateTimeField(null=True, editable=False)
    # Of an application whose client is deleted: how its last tokens are signed. `url` is then where they are sent.
    signed_response_alg = models.CharField(max_length=16, blank=True, default="", db_default="", editable=False)

    # Those of applications follow their clients, which are in the global database.
    after_restore: ClassVar[AfterRestore] = Journaled(
        (
            Revocation("webhook endpoint", condition="client_id IS NULL"),
            Revocation("disabled webhook endpoint", condition="enabled AND client_id IS NULL", ending="disable_again"),
            Revocation(
                "replaced webhook endpoint",
                "id, url, events, md5(secret_sealed)",
                "enabled AND client_id IS NULL",
                ending="disable_again",
            ),
        )
    )

    @classmethod
    def disable_again(cls, matches: Sequence[RestoredRow]) -> None:
        """Disable endpoints of a restored database that were disabled since its backup, or had another address or secret."""
        endpoints = cls._base_manager.filter(pk__in=[match.pk for match in matches])
        endpoints.update(enabled=False, disabled_reason=cls.BY_ADMIN, updated_at=timezone.now())


class WebhookMessage(TenantModel):
    """One event on its way to one endpoint.

    Messages go out in the order of their ids. The id is assigned when the change is written, so of two changes to
    the same rows the later one has the higher id (userflow.webhooks.queue).
    """

    # No foreign key: an endpoint that is removed at the same moment must not roll the change back.
    endpoint_id = models.UUIDField()
    # `webhook-id`; the same for every endpoint that receives the event, and for every attempt.
    message_id = models.CharField(max_length=40)
    event = models.CharField(max_length=64)
    # The user of the event: erasing the user deletes the message unless it is still to be sent.
    subject_id = models.UUIDField(null=True)
    # The exact text that is signed and sent.
    body = models.TextField()
    status = models.CharField(max_length=16, default=PENDING, db_default=PENDING)
    attempts = models.PositiveIntegerField(default=0, db_default=0)
    created_at = models.DateTimeField(db_default=Now())
    # Retries are scheduled from this time; a replay sets it again.
    queued_at = models.DateTimeField(db_default=Now())
    next_attempt_at = models.DateTimeField(db_default=Now())
    settled_at = models.DateTimeField(null=True)
    last_status = models.PositiveSmallIntegerField(null=True)
    last_error = models.CharField(max_length=64, blank=True, default="", db_default="")
    # In the row itself: recording an attempt costs no further statement, and erasing the message erases the responses too.
    attempt_log: "models.JSONField[list[Attempt], list[Attempt]]" = models.JSONField(default=list, db_default=[])

    after_restore: ClassVar[AfterRestore] = NoAuthority("They go to the endpoints that are left.")

    class Meta:
        indexes = [
            models.Index(
                fields=["endpoint_id", "id"], condition=models.Q(status=PENDING), name="webhook_message_queue"
            ),
            models.Index(fields=["endpoint_id", "status", "-id"], name="webhook_message_newest"),
            models.Index(fields=["settled_at"], name="webhook_message_settled"),
            models.Index(fields=["subject_id"], name="webhook_message_subject"),
        ]

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Delivered or dead-lettered long ago, pending for long for a disabled endpoint, or without an endpoint."""
        delivered = moment - timedelta(days=settings.WEBHOOK_DELIVERED_DAYS)
        dead = moment - timedelta(days=settings.WEBHOOK_DEAD_DAYS)
        here = WebhookEndpoint.objects.filter(pk=models.OuterRef("endpoint_id"))
        return (
            models.Q(status=DELIVERED, settled_at__lt=delivered)
            | models.Q(status=DEAD, settled_at__lt=dead)
            | models.Q(models.Exists(here.filter(enabled=False)), status=PENDING, queued_at__lt=dead)
            | ~models.Q(models.Exists(here))
        )

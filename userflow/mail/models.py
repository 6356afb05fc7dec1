"""Mails that are still to be sent, in the database that they are about: a tenant's own, or the global one."""

from datetime import datetime, timedelta
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from identity_platform.restoring import AfterRestore, Closed
from tenants.models import TenantModel


class QueuedMail(models.Model):
    """A mail, or the request for one, until it is sent. One that is given up stays for a while, without its content.

    Those to one address are sent in the order of their ids.
    """

    PENDING: ClassVar[str] = "pending"
    DEAD: ClassVar[str] = "dead"

    # The template in templates/email, or for a request its kind (`userflow.mail_delivery.requests`).
    template = models.CharField(max_length=32)
    is_request = models.BooleanField(default=False)
    # Who gets the mail, in the form that addresses are compared in.
    address = models.CharField(max_length=320)
    # What the mail says. It may hold the token of a link.
    content_sealed = models.BinaryField()
    status = models.CharField(max_length=8, default=PENDING)
    attempts = models.PositiveIntegerField(default=0)
    # How often the mail server has answered that it does not take this mail.
    refusals = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())
    # A process that sends the mail moves this forward: another one takes it up after a kill.
    next_attempt_at = models.DateTimeField(db_default=Now())
    # When the mail has no more use.
    expires_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=64, blank=True, default="")

    class Meta:
        abstract = True
        indexes = [
            models.Index(
                fields=["next_attempt_at", "id"], condition=models.Q(status="pending"), name="%(class)s_queue"
            ),
            models.Index(fields=["address", "id"], condition=models.Q(status="pending"), name="%(class)s_order"),
            models.Index(fields=["settled_at"], name="%(class)s_settled"),
        ]

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Return the condition of mails given up long ago, or without any process that would have given them up."""
        threshold = moment - timedelta(days=settings.MAIL_DEAD_DAYS)
        return models.Q(status=cls.DEAD, settled_at__lt=threshold) | models.Q(
            status=cls.PENDING, expires_at__lt=threshold
        )


class TenantMail(QueuedMail, TenantModel):
    """A mail about a user or the data of one tenant."""

    # A mail of a restored database was sent before, or is about a state that is no more.
    after_restore: ClassVar[AfterRestore] = Closed()

    @classmethod
    def close_all(cls, moment: datetime) -> None:
        """Delete all rows; `tenants.journals.revocations` calls this after a restore."""
        cls._base_manager.all().delete()


class PlatformMail(QueuedMail):
    """A mail to an admin user, about the global database."""

"""Phones, codes and messages of a tenant's end users. Numbers are sealed; a keyed digest keeps them unique."""

import uuid
from datetime import datetime, timedelta
from typing import Any

from django.db import models

from tenants.models import TenantModel
from userflow.accounts.models import EndUser

CODES_KEPT = timedelta(hours=1)
MESSAGES_KEPT = timedelta(days=35)


class Phone(TenantModel):
    """A number that its user has confirmed; unconfirmed ones exist only in a code's digest."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="phones")
    number_sealed = models.BinaryField(editable=False)
    number_digest = models.BinaryField(unique=True)
    last_four = models.CharField(max_length=4)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user"], name="phone_one_of_a_user")]

    def __str__(self) -> str:
        return self.display

    @property
    def display(self) -> str:
        """What answers show of the number."""
        return f"***-***-{self.last_four}"

    def summary(self) -> dict[str, Any]:
        """The factor in lists."""
        return {
            "id": self.id,
            "kind": "sms",
            "name": self.display,
            "created_at": self.created_at,
            "last_used_at": self.last_used_at,
        }


class SmsCode(TenantModel):
    """The newest code for one number of one user and one purpose, and the tries at it.

    The row stays when a new code is asked for, so that this does not reset the tries.
    """

    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="sms_codes")
    purpose = models.CharField(max_length=16, help_text="enrollment or verification")
    number_digest = models.BinaryField()
    code_digest = models.BinaryField()
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    # Network of the caller who asked for the code without a proof; empty for a caller with a ticket or token.
    asked_from = models.CharField(max_length=43, default="")
    # Callers who hold a ticket or token of the user have tries of their own: strangers cannot use them up.
    known_tries = models.PositiveSmallIntegerField(default=0)
    known_tried_at = models.DateTimeField(null=True)
    stranger_tries = models.PositiveSmallIntegerField(default=0)
    stranger_tried_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "purpose", "number_digest"], name="sms_code_newest_only")
        ]
        indexes = [models.Index(fields=["expires_at"], name="sms_code_expiry")]

    def __str__(self) -> str:
        return self.purpose

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Expired so long ago that its tries are forgotten too."""
        return models.Q(expires_at__lt=moment - CODES_KEPT)


class SmsMessage(TenantModel):
    """One message that was paid for: counted against the budgets, and whether its code was ever used."""

    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="sms_messages")
    caller = models.CharField(max_length=8)
    country_prefix = models.CharField(max_length=4)
    sent_at = models.DateTimeField(auto_now_add=True)
    failed = models.BooleanField(default=False)
    converted_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["user", "sent_at"], name="sms_message_user"),
            models.Index(fields=["sent_at"], name="sms_message_age"),
            models.Index(fields=["country_prefix", "sent_at"], name="sms_message_prefix"),
        ]

    def __str__(self) -> str:
        return self.country_prefix

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Past every budget and every look at the conversion."""
        return models.Q(sent_at__lt=moment - MESSAGES_KEPT)

"""Phones, codes and messages of a tenant's end users. Numbers are sealed; a keyed digest keeps them unique."""

from datetime import timedelta
from typing import ClassVar

from django.db import models

from identity_platform.restoring import AfterRestore, Journaled, NoAuthority, Revocation
from mfa.factor_models import Factor
from tenants.models import TenantModel
from userflow.accounts.models import EndUser
from userflow.accounts.session_models import ClosedByRestore, Expiring


class Phone(Factor, TenantModel):
    """A confirmed number; unconfirmed numbers are stored only in the digest of a code."""

    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="phones")
    number_sealed = models.BinaryField(editable=False)
    number_digest = models.BinaryField(unique=True)
    last_four = models.CharField(max_length=4)

    kind = "sms"
    after_restore: ClassVar[AfterRestore] = Journaled((Revocation("phone", ending="remove_again"),))

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user"], name="phone_one_of_a_user")]

    def __str__(self) -> str:
        return self.display

    @property
    def display(self) -> str:
        """What responses show of the number."""
        return f"***-***-{self.last_four}"


class SmsCode(Expiring, ClosedByRestore, TenantModel):
    """The newest code for one number of one user and one purpose, and the attempts at it.

    The row stays when a new code is requested, so that this does not reset the attempts.
    """

    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="sms_codes")
    purpose = models.CharField(max_length=16, help_text="enrollment or verification")
    number_digest = models.BinaryField()
    code_digest = models.BinaryField()
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    # Network of the caller who requested the code without a proof; empty for a caller with a ticket or token.
    asked_from = models.CharField(max_length=43, default="")
    # Callers who hold a ticket or token of the user have attempts of their own, which other callers cannot use up.
    known_tries = models.PositiveSmallIntegerField(default=0)
    known_tried_at = models.DateTimeField(null=True)
    stranger_tries = models.PositiveSmallIntegerField(default=0)
    stranger_tried_at = models.DateTimeField(null=True)

    # By then its attempts no longer count.
    kept_for = timedelta(hours=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "purpose", "number_digest"], name="sms_code_newest_only")
        ]
        indexes = [models.Index(fields=["expires_at"], name="sms_code_expiry")]


class SmsMessage(Expiring, TenantModel):
    """One sent message: it counts against the budgets. `converted_at` is set when its code is used."""

    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="sms_messages")
    caller = models.CharField(max_length=8)
    country_prefix = models.CharField(max_length=4)
    sent_at = models.DateTimeField(auto_now_add=True)
    failed = models.BooleanField(default=False)
    converted_at = models.DateTimeField(null=True)

    # Longer than every budget and the conversion alarm look back.
    expires_by, kept_for = "sent_at", timedelta(days=35)
    after_restore: ClassVar[AfterRestore] = NoAuthority("They only limit.")

    class Meta:
        indexes = [
            models.Index(fields=["user", "sent_at"], name="sms_message_user"),
            models.Index(fields=["sent_at"], name="sms_message_age"),
            models.Index(fields=["country_prefix", "sent_at"], name="sms_message_prefix"),
        ]

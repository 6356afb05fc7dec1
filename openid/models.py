"""Authorization requests, codes, device codes and consents of a tenant, in its own database."""

from datetime import datetime, timedelta
from typing import ClassVar

from django.db import models
from django.utils.timezone import now

from identity_platform.restoring import AfterRestore, Closed, Journaled, Revocation
from tenants.models import TenantModel
from userflow.accounts.models import THIS_ROW, EndUser
from userflow.accounts.session_models import EndUserSession


class ShortLived(TenantModel):
    """What a client waits for. It does not survive a restore."""

    # How long after its expiry it is still kept.
    KEPT: ClassVar[timedelta] = timedelta(0)

    # SHA-256 of the handle of a request, of a code, or of what a device polls with.
    digest = models.BinaryField(primary_key=True)
    client_id = models.UUIDField()
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()

    after_restore: ClassVar[AfterRestore] = Closed()

    class Meta:
        abstract = True

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Expired so long ago that nothing asks for it any more."""
        return models.Q(expires_at__lt=moment - cls.KEPT)

    @classmethod
    def delete_expired(cls, most: int) -> None:
        """Delete up to `most` expired rows."""
        oldest = cls._default_manager.filter(cls.expired(now())).order_by("expires_at")
        cls._default_manager.filter(pk__in=oldest.values("pk")[:most]).delete()

    @classmethod
    def close_all(cls, moment: datetime) -> None:
        """After a restore nothing that waited continues."""
        cls._default_manager.all().delete()


class AuthorizationRequest(ShortLived):
    """An authorization request that was pushed (RFC 9126), or waits until the user has signed in and consented."""

    # Its handle is the part of a `request_uri` after its prefix, or the value in the address of a hosted page.
    # As validated: the fields of `openid.authorization.parameters.Parameters`.
    parameters: "models.JSONField[dict[str, object], dict[str, object]]" = models.JSONField()
    # A pushed request, or one of the requests of browsers that have opened it, each with a handle of its own. A browser may
    # open it again until one of them has finished it.
    pushed = models.BooleanField(default=False)
    # The digest of the pushed request that a browser's request comes from.
    pushed_digest = models.BinaryField(null=True)
    # SHA-256 of the cookie of the browser that brought it: no other browser may continue it.
    browser_digest = models.BinaryField(null=True)
    # Set when the user chose this account or gave consent because the request asked for it (`prompt`).
    account_chosen_at = models.DateTimeField(null=True)
    consented_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["expires_at"], name="authorization_request_expiry"),
            models.Index(
                fields=["pushed_digest"],
                name="authorization_request_pushed",
                condition=models.Q(pushed_digest__isnull=False),
            ),
        ]


class AuthorizationCode(ShortLived):
    """A code (RFC 6749 section 4.1.2): 256 bits, stored hashed, used once within a minute.

    A used one is kept for a while, so that its reuse ends the session that was opened with it.
    """

    # Reuse within this time, by a reader of a log or a history, ends the session that the code has opened.
    KEPT: ClassVar[timedelta] = timedelta(days=1)

    # The browser's session that the user signed in with, and the application's session that the code has opened.
    session = models.ForeignKey(EndUserSession, on_delete=models.CASCADE, related_name="codes")
    opened = models.ForeignKey(EndUserSession, null=True, on_delete=models.CASCADE, related_name="opened_by")
    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="+")
    redirect_uri = models.CharField(max_length=2048)
    code_challenge = models.CharField(max_length=128)
    dpop_jkt = models.CharField(max_length=43, blank=True, default="")
    scopes: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    audiences: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    id_token_claims: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    userinfo_claims: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    nonce = models.CharField(max_length=1024, blank=True, default="")
    used_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="authorization_code_expiry")]


class DeviceCode(ShortLived):
    """A device that waits until its user has signed it in with a browser (RFC 8628 section 3.2)."""

    class Status(models.TextChoices):
        """What has become of it."""

        PENDING = "pending"
        APPROVED = "approved"
        DENIED = "denied"
        USED = "used"

    # For how long a device that polls too late learns that its code has expired.
    KEPT: ClassVar[timedelta] = timedelta(hours=1)

    # A keyed digest of the code that its user types: eight letters could be found out from a hash.
    user_code_digest = models.BinaryField(unique=True)
    scopes: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    audiences: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    status = models.CharField(max_length=8, choices=Status.choices, default=Status.PENDING)
    # The browser's session of the user who has approved it.
    session = models.ForeignKey(EndUserSession, null=True, on_delete=models.CASCADE, related_name="device_codes")
    # The device, for the user and for the list of sessions.
    address = models.CharField(max_length=45, blank=True, default="")
    user_agent = models.CharField(max_length=255, blank=True, default="")
    # Seconds between two polls; polling too fast raises it.
    interval = models.PositiveSmallIntegerField()
    # Unused: the time of the last poll is in Valkey, so that a poll writes no row.
    last_polled_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="device_code_expiry")]


class Consent(TenantModel):
    """A user lets an application have what these scopes stand for, with tokens for these audiences."""

    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="consents")
    client_id = models.UUIDField()
    scopes: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    audiences: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list, db_default=[])
    # Claims that the tenant's settings map (`openid.claims.mapped_claims`), by name.
    claims: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list, db_default=[])
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects: ClassVar[models.Manager["Consent"]]
    after_restore: ClassVar[AfterRestore] = Journaled((Revocation("consent", THIS_ROW),))

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "client_id"], name="consent_unique")]
        indexes = [models.Index(fields=["client_id"], name="consent_client")]

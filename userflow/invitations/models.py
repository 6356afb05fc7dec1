"""Invitations: of admin users in the global database, of end users in the tenant's."""

import uuid
from datetime import datetime, timedelta
from typing import ClassVar

from django.db import models

from identity_platform.restoring import AfterRestore, Closed
from tenants.models import Tenant, TenantModel
from userflow.accounts.models import LONGEST_EXTERNAL_ID

# How long after its expiry an invitation is still listed.
KEPT = timedelta(days=90)
ADMIN, END_USER = "admin", "end_user"
PENDING, ACCEPTED, CANCELLED, EXPIRED = "pending", "accepted", "cancelled", "expired"


class Invitation(models.Model):
    """An invitation to become a user. The token is only in the mail; the row stores its SHA-256."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    email = models.CharField(max_length=254)
    email_key = models.CharField(max_length=254)
    # Names of admin roles, or ids of the tenant's roles: a deleted role that is created again under its name gets a new id.
    roles: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    invited_by_kind = models.CharField(max_length=16)
    invited_by_id = models.UUIDField()
    token_digest = models.BinaryField(unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)
    cancelled_at = models.DateTimeField(null=True)
    # The user created from it.
    user_id = models.UUIDField(null=True)

    class Meta:
        abstract = True

    # Neither accepted nor cancelled. Whether it has expired depends on the clock, which no index knows.
    OPEN: ClassVar[models.Q] = models.Q(accepted_at=None, cancelled_at=None)

    def __str__(self) -> str:
        return str(self.id)

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Expired long ago."""
        return models.Q(expires_at__lt=moment - KEPT)

    def status(self, moment: datetime) -> str:
        """Return the status at this moment."""
        if self.accepted_at is not None:
            return ACCEPTED
        if self.cancelled_at is not None:
            return CANCELLED
        return PENDING if self.expires_at > moment else EXPIRED


class AdminInvitation(Invitation):
    """An invitation of a tenant admin, or of an operator if there is no tenant."""

    kind: ClassVar[str] = ADMIN

    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.CASCADE, related_name="admin_invitations")

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "-created_at", "-id"], name="admin_invitation_newest"),
            models.Index(fields=["email_key"], name="admin_invitation_email"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["email_key", "tenant"],
                condition=Invitation.OPEN,
                nulls_distinct=False,
                name="admin_invitation_open_unique",
            )
        ]


class EndUserInvitation(Invitation, TenantModel):
    """An invitation of an end user, through one of the tenant's clients."""

    kind: ClassVar[str] = END_USER

    client_id = models.UUIDField()
    # Of the future user; written by inviters with `endusers:write` only.
    app_metadata: "models.JSONField[dict[str, object], dict[str, object]]" = models.JSONField(
        default=dict, db_default={}
    )
    external_id = models.CharField(max_length=LONGEST_EXTERNAL_ID, null=True)

    after_restore: ClassVar[AfterRestore] = Closed()

    class Meta:
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="end_user_invitation_newest"),
            models.Index(fields=["email_key"], name="end_user_invitation_email"),
            # An erasure looks up the invitation that the user accepted; most rows have no user.
            models.Index(
                fields=["user_id"], condition=models.Q(user_id__isnull=False), name="end_user_invitation_user"
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["email_key"], condition=Invitation.OPEN, name="end_user_invitation_open_unique"
            )
        ]

    @property
    def writes_for_applications(self) -> bool:
        """Whether it gives the user what applications rely on, which needs the permission `endusers:write`."""
        return bool(self.app_metadata) or self.external_id is not None

    @classmethod
    def close_all(cls, moment: datetime) -> None:
        """Expire all open invitations after a restore; they can be resent."""
        cls._base_manager.filter(expires_at__gt=moment).update(expires_at=moment)

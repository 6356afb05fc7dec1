"""Pending verifications of e-mail addresses."""

from datetime import datetime

from django.db import models

from tenants.models import TenantModel
from userflow.accounts.models import AdminUser, EndUser


class EmailProof(TenantModel):
    """A link and a code that were sent to an address. Sending one of them back verifies the address.

    One for each user, the newest. `email` is the user's own address, or the one it is to become.
    """

    user = models.OneToOneField(EndUser, on_delete=models.CASCADE, primary_key=True, related_name="email_proof")
    email = models.CharField(max_length=254)
    email_key = models.CharField(max_length=254, db_index=True)
    # SHA-256 of 256 bits, and HMAC of six digits under the tenant's data key.
    token_digest = models.BinaryField(unique=True)
    code_digest = models.BinaryField()
    wrong_codes = models.PositiveSmallIntegerField(default=0)
    # The session that requested a change of address; it continues when the others end.
    session_id = models.UUIDField(null=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="email_proof_expiry")]

    def __str__(self) -> str:
        return str(self.user_id)

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Expired; a new one can be asked for."""
        return models.Q(expires_at__lt=moment)

    @classmethod
    def close_all(cls, moment: datetime) -> None:
        """After a restore users request another mail."""
        cls._base_manager.all().delete()


class AdminEmailProof(models.Model):
    """A link that was sent to the address of an admin user; following it verifies the address.

    One for each user, the newest. `email` is the user's own address, or the one that it is to become.
    """

    user = models.OneToOneField(AdminUser, on_delete=models.CASCADE, primary_key=True, related_name="email_proof")
    email = models.CharField(max_length=254)
    email_key = models.CharField(max_length=254)
    # SHA-256 of 256 bits.
    token_digest = models.BinaryField(unique=True)
    # The session that requested a change of address; it continues when the others end.
    session_id = models.UUIDField(null=True)
    expires_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="admin_email_proof_expiry")]

    def __str__(self) -> str:
        return str(self.user_id)

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Expired."""
        return models.Q(expires_at__lt=moment)


class EmailUndo(models.Model):
    """A link that was sent to the address that a change replaces. It undoes the change.

    The address of the row is the old one.
    """

    email = models.CharField(max_length=254)
    email_key = models.CharField(max_length=254)
    # SHA-256 of 256 bits.
    token_digest = models.BinaryField(unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.pk)

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Expired."""
        return models.Q(expires_at__lt=moment)


class AdminEmailUndo(EmailUndo):
    user = models.ForeignKey(AdminUser, on_delete=models.CASCADE, related_name="email_undos")

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="admin_email_undo_expiry")]


class EndUserEmailUndo(EmailUndo, TenantModel):
    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="email_undos")

    class Meta:
        indexes = [
            models.Index(fields=["expires_at"], name="end_user_email_undo_expiry"),
            # The old address stays reserved while the link is valid.
            models.Index(fields=["email_key"], name="end_user_email_undo_key"),
        ]

    @classmethod
    def close_all(cls, moment: datetime) -> None:
        """After a restore the changes that the links undo may not have happened."""
        cls._base_manager.all().delete()

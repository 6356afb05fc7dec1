"""Pending verifications of e-mail addresses."""

from django.db import models

from tenants.models import TenantModel
from userflow.accounts.models import AdminUser, EndUser
from userflow.accounts.session_models import ClosedByRestore, Expiring


class MailedLink(Expiring):
    """A link that was sent to an address, `email`."""

    email = models.CharField(max_length=254)
    email_key = models.CharField(max_length=254)
    # SHA-256 of 256 bits.
    token_digest = models.BinaryField(unique=True)
    expires_at = models.DateTimeField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.pk)


class EmailProof(MailedLink, ClosedByRestore, TenantModel):
    """A link and a code that were sent to an address. Sending one of them back verifies the address.

    One for each user, the newest. `email` is the user's own address, or the one it is to become.
    """

    user = models.OneToOneField(EndUser, on_delete=models.CASCADE, primary_key=True, related_name="email_proof")
    email_key = models.CharField(max_length=254, db_index=True)
    # HMAC of six digits under the tenant's data key.
    code_digest = models.BinaryField()
    wrong_codes = models.PositiveSmallIntegerField(default=0)
    # The session that requested a change of address; it continues when the others end.
    session_id = models.UUIDField(null=True)
    created_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="email_proof_expiry")]


class AdminEmailProof(MailedLink):
    """A link that was sent to the address of an admin user; following it verifies the address.

    One for each user, the newest. `email` is the user's own address, or the one that it is to become.
    """

    user = models.OneToOneField(AdminUser, on_delete=models.CASCADE, primary_key=True, related_name="email_proof")
    # The session that requested a change of address; it continues when the others end.
    session_id = models.UUIDField(null=True)

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="admin_email_proof_expiry")]


class EmailUndo(MailedLink):
    """A link that was sent to the address that a change replaces, and undoes the change."""

    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True


class AdminEmailUndo(EmailUndo):
    user = models.ForeignKey(AdminUser, on_delete=models.CASCADE, related_name="email_undos")

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="admin_email_undo_expiry")]


class EndUserEmailUndo(EmailUndo, ClosedByRestore, TenantModel):
    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="email_undos")

    class Meta:
        indexes = [
            models.Index(fields=["expires_at"], name="end_user_email_undo_expiry"),
            # The old address stays reserved while the link is valid.
            models.Index(fields=["email_key"], name="end_user_email_undo_key"),
        ]

"""Pending verifications of e-mail addresses, and registrations that wait for one."""

import uuid

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


class MailedCode(MailedLink):
    """A link and a code that were sent to an address. Sending one of them back verifies the address."""

    email_key = models.CharField(max_length=254, db_index=True)
    # Link and code are derived from it with the tenant's data key: a mail that is sent again repeats those that are valid.
    seed = models.BinaryField(db_default=b"")
    # HMAC of six digits under the tenant's data key.
    code_digest = models.BinaryField()
    # Wrong codes of callers from elsewhere, and of those in the network of the first request.
    wrong_codes = models.PositiveSmallIntegerField(default=0)
    own_wrong_codes = models.PositiveSmallIntegerField(default=0, db_default=0)
    # Of the request that the first mail was sent for; empty if it is unknown.
    network = models.CharField(max_length=49, default="", db_default="")
    # When the code was issued.
    created_at = models.DateTimeField()

    class Meta:
        abstract = True


class EmailProof(MailedCode, ClosedByRestore, TenantModel):
    """One for each user, the newest. `email` is the user's own address, or the one it is to become."""

    user = models.OneToOneField(EndUser, on_delete=models.CASCADE, primary_key=True, related_name="email_proof")
    # The session that requested a change of address; it continues when the others end.
    session_id = models.UUIDField(null=True)

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="email_proof_expiry")]


class PendingRegistration(MailedCode, ClosedByRestore, TenantModel):
    """A registration that waits until its own link or code comes back, where the tenant requires a verified address.

    An address can have several, each with the password that was sent with it. See `pending_registrations`.
    """

    # The id of the user that it becomes.
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=255)
    client_id = models.UUIDField(null=True)
    # Empty for a request of a new password: the link of its mail sets one.
    password = models.CharField(max_length=512)

    class Meta:
        indexes = [
            models.Index(fields=["expires_at"], name="pending_registration_expiry"),
            models.Index(fields=["network"], name="pending_registration_network"),
        ]


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

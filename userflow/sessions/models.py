"""Signing keys of access tokens, and clients' revoked tokens."""

from collections.abc import Sequence
from typing import ClassVar

from django.db import models

from identity_platform.restoring import AfterRestore, Journaled, NoAuthority, RestoredRow, Revocation
from tenants.models import TenantModel
from userflow.accounts.session_models import Expiring

Jwk = dict[str, str]


class SigningKeyBase(Expiring):
    """A key pair (RFC 7518 sections 3.3 and 3.4); the private key is sealed under the owner's data key."""

    kid = models.CharField(max_length=43, primary_key=True, help_text="JWK thumbprint, RFC 7638.")
    public_jwk: "models.JSONField[Jwk, Jwk]" = models.JSONField()
    private_sealed = models.BinaryField(editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    # Later than the creation, so that verifiers have time to fetch the public key.
    signs_from = models.DateTimeField()
    # Set when a successor takes over.
    verifies_until = models.DateTimeField(null=True)

    # By then its last token has expired.
    expires_by = "verifies_until"
    objects: ClassVar[models.Manager["SigningKeyBase"]]

    class Meta:
        abstract = True

    @property
    def algorithm(self) -> str:
        """The only algorithm that this key signs with."""
        return self.public_jwk["alg"]


class SigningKey(SigningKeyBase):
    """A key of the platform: signs the tokens of operators and tenant admins."""

    class Meta:
        indexes = [models.Index(fields=["verifies_until"], name="signing_key_verifies")]


class TenantSigningKey(SigningKeyBase, TenantModel):
    """A key of a tenant, in its own database: signs the tokens of its end users and clients."""

    after_restore: ClassVar[AfterRestore] = Journaled(
        (Revocation("signing key", "kid", until="verifies_until", ending="retire_again"),)
    )

    class Meta:
        indexes = [models.Index(fields=["verifies_until"], name="tenant_signing_key_verifies")]

    @classmethod
    def retire_again(cls, matches: Sequence[RestoredRow]) -> None:
        """Retire keys of a restored database that were rotated out or withdrawn since its backup."""
        for match in matches:
            cls._base_manager.filter(pk=match.pk).update(verifies_until=match.ends_at)


class RevokedTokenBase(Expiring):
    """A client's access token that was revoked before it expired (RFC 7009). A user's tokens end with the session."""

    jti = models.CharField(max_length=64, primary_key=True)
    expires_at = models.DateTimeField()

    class Meta:
        abstract = True


class RevokedToken(RevokedTokenBase):
    """In the global database, where 1.2 still writes it. Nothing reads it; the release after this one removes the table."""

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="revoked_token_expiry")]


class TenantRevokedToken(RevokedTokenBase, TenantModel):
    """In the tenant's own database."""

    after_restore: ClassVar[AfterRestore] = NoAuthority(
        "A row takes authority away. A restore raises the generation of each client: their tokens since the backup end."
    )

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="tenant_revoked_token_expiry")]

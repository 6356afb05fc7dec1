"""Signing keys of access tokens, and clients' revoked tokens."""

from datetime import datetime
from typing import ClassVar

from django.db import models

from tenants.models import TenantModel

Jwk = dict[str, str]


class SigningKeyBase(models.Model):
    """A key pair (RFC 7518 sections 3.3 and 3.4); the private key is sealed under the owner's data key."""

    kid = models.CharField(max_length=43, primary_key=True, help_text="JWK thumbprint, RFC 7638.")
    public_jwk: "models.JSONField[Jwk, Jwk]" = models.JSONField()
    private_sealed = models.BinaryField(editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    # Later than the creation, so that verifiers have time to fetch the public key.
    signs_from = models.DateTimeField()
    # Set when a successor takes over.
    verifies_until = models.DateTimeField(null=True)

    objects: ClassVar[models.Manager["SigningKeyBase"]]

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.kid

    @property
    def algorithm(self) -> str:
        """The only algorithm that this key signs with."""
        return self.public_jwk["alg"]

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Its last token has expired."""
        return models.Q(verifies_until__lt=moment)


class SigningKey(SigningKeyBase):
    """A key of the platform: signs the tokens of operators and tenant admins."""

    class Meta:
        indexes = [models.Index(fields=["verifies_until"], name="signing_key_verifies")]


class TenantSigningKey(SigningKeyBase, TenantModel):
    """A key of a tenant, in its own database: signs the tokens of its end users and clients."""

    class Meta:
        indexes = [models.Index(fields=["verifies_until"], name="tenant_signing_key_verifies")]


class RevokedToken(models.Model):
    """A client's access token that was revoked before it expired (RFC 7009). A user's tokens end with the session."""

    jti = models.CharField(max_length=64, primary_key=True)
    expires_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="revoked_token_expiry")]

    def __str__(self) -> str:
        return self.jti

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Expired, so the token is rejected anyway."""
        return models.Q(expires_at__lt=moment)

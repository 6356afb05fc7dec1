"""Signing keys of access and refresh tokens."""

from datetime import datetime

from django.db import models


class SigningKey(models.Model):
    """An ES256 key pair (RFC 7518 section 3.4); the private key is sealed under the platform's data key."""

    kid = models.CharField(max_length=43, primary_key=True, help_text="JWK thumbprint, RFC 7638.")
    public_jwk: "models.JSONField[dict[str, object], dict[str, object]]" = models.JSONField()
    private_sealed = models.BinaryField(editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    # Later than the creation, so that verifiers have time to fetch the public key.
    signs_from = models.DateTimeField()
    # Set when a successor takes over.
    verifies_until = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["verifies_until"], name="signing_key_verifies")]

    def __str__(self) -> str:
        return self.kid

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Its last token has expired."""
        return models.Q(verifies_until__lt=moment)


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

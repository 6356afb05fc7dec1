"""Passkeys and challenges of end users (tenant database) and admin users (global database)."""

from django.db import models

from mfa.factor_models import Factor
from mfa.webauthn.authenticators import name_of
from tenants.models import TenantModel
from userflow.accounts.models import AdminUser, EndUser
from userflow.accounts.session_models import Expiring


class Passkey(Factor):
    """A stored WebAuthn public key (a credential record of Level 3 section 4); nothing in it is secret."""

    credential_id = models.BinaryField(max_length=1023, unique=True)
    public_key = models.BinaryField()
    sign_count = models.PositiveBigIntegerField(default=0)
    aaguid = models.UUIDField(help_text="Model of the authenticator, as it says itself.")
    transports: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    # Never changes (section 6.1.3); whether it is backed up right now does.
    backup_eligible = models.BooleanField()
    backed_up = models.BooleanField()
    # Enrolled through a window or an enrollment pass: no sign-in without the password, until one with both has succeeded.
    second_step_only = models.BooleanField(default=False, db_default=False)
    # The name that its owner gave it.
    name = models.CharField(max_length=60, blank=True, default="", db_default="")
    # The relying party id that it was created for: no other can use it. None in rows of earlier releases, which belong to
    # the id in force; a change of that id, or the next use, writes it.
    rp_id = models.CharField(max_length=253, null=True)

    kind = "webauthn"

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name or name_of(str(self.aaguid))

    def summary(self) -> dict[str, object]:
        """Return the passkey as lists of factors show it."""
        return {**super().summary(), "backed_up": self.backed_up, "rp_id": self.rp_id}

    @classmethod
    def usable_with(cls, rp_id: str | None) -> models.Q:
        """Return the condition of the passkeys that this relying party id can use."""
        return models.Q(rp_id=rp_id) | models.Q(rp_id=None)


class AdminPasskey(Passkey):
    user = models.ForeignKey(AdminUser, on_delete=models.CASCADE, related_name="passkeys")

    class Meta:
        verbose_name = "admin webauthn credential"


class EndUserPasskey(Passkey, TenantModel):
    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="passkeys")

    class Meta:
        verbose_name = "end user webauthn credential"


class Challenge(Expiring):
    """An open ceremony: 256 random bits that one response may answer, once, within five minutes.

    `ceremony` is `registration` or `authentication` of one user, or `sign_in` of any user with a discoverable credential;
    then `client_id` is the client of the sign-in.
    """

    digest = models.BinaryField(primary_key=True)
    ceremony = models.CharField(max_length=16)
    client_id = models.UUIDField(null=True)
    expires_at = models.DateTimeField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.ceremony


class AdminChallenge(Challenge):
    user = models.ForeignKey(AdminUser, null=True, on_delete=models.CASCADE, related_name="webauthn_challenges")

    class Meta:
        verbose_name = "admin webauthn challenge"
        indexes = [models.Index(fields=["expires_at"], name="admin_challenge_expiry")]


class EndUserChallenge(Challenge, TenantModel):
    user = models.ForeignKey(EndUser, null=True, on_delete=models.CASCADE, related_name="webauthn_challenges")

    class Meta:
        verbose_name = "end user webauthn challenge"
        indexes = [models.Index(fields=["expires_at"], name="end_user_challenge_expiry")]

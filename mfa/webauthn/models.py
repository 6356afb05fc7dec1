"""Passkeys and challenges of end users (tenant database) and admin users (global database)."""

from typing import ClassVar, Final

from django.db import models

from identity_platform.restoring import AfterRestore, Journaled, Revocation
from mfa.factor_models import Factor
from tenants.models import TenantModel
from userflow.accounts.models import AdminUser, EndUser
from userflow.accounts.session_models import ClosedByRestore, Expiring

# Names of well-known authenticators by AAGUID, for lists of factors and for nothing else: without attestation the client
# states the AAGUID. From the community's list (github.com/passkeydeveloper/passkey-authenticator-aaguids) and Yubico's values.
UNNAMED: Final = "Passkey"
NAMES: Final = {
    "ea9b8d66-4d01-1d21-3ce4-b6b48cb575d4": "Google Password Manager",
    "adce0002-35bc-c60a-648b-0b25f1f05503": "Chrome on Mac",
    "b5397666-4885-aa6b-cebf-e52262a439a2": "Chromium Browser",
    "771b48fd-d3d4-4f74-9232-fc157ab0507a": "Edge on Mac",
    "08987058-cadc-4b81-b6e1-30de50dcbe96": "Windows Hello",
    "9ddd1817-af5a-4672-a2b9-3e3dd95000a9": "Windows Hello",
    "6028b017-b1d4-4c02-b4b3-afcdafc96bb2": "Windows Hello",
    "fbfc3007-154e-4ecc-8c0b-6e020557d7bd": "Apple Passwords",
    "dd4ec289-e01d-41c9-bb89-70fa845d4bf2": "iCloud Keychain (Managed)",
    "53414d53-554e-4700-0000-000000000000": "Samsung Pass",
    "bada5566-a7aa-401f-bd96-45619a55120d": "1Password",
    "d548826e-79b4-db40-a3d8-11116f7e8349": "Bitwarden",
    "531126d6-e717-415c-9320-3d9aa6981239": "Dashlane",
    "b84e4048-15dc-4dd0-8640-f4f60813c8af": "NordPass",
    "0ea242b4-43c4-4a1b-8b17-dd6d0b6baec6": "Keeper",
    "f3809540-7f14-49c1-a8b3-8f813b225541": "Enpass",
    "fdb141b2-5d84-443e-8a35-4698c205a502": "KeePassXC",
    "50726f74-6f6e-5061-7373-50726f746f6e": "Proton Pass",
    "b78a0a55-6ef8-d246-a042-ba0f6d55050c": "LastPass",
    "39a5647e-1853-446c-a1f6-a79bae9f5bc7": "IDmelon",
    "a11a5faa-9f32-4b8c-8c5d-2f7d13e8c942": "AliasVault",
    "ee882879-721c-4913-9775-3dfcce97072a": "YubiKey 5 Series",
    "cb69481e-8ff7-4039-93ec-0a2729a154a8": "YubiKey 5 Series",
    "fa2b99dc-9e39-4257-8f92-4a30d23c4118": "YubiKey 5 Series with NFC",
    "2fc0579f-8113-47ea-b116-bb5a8db9202a": "YubiKey 5 Series with NFC",
    "c5ef55ff-ad9a-4b9f-b580-adebafe026d0": "YubiKey 5 Series with Lightning",
    "73bb0cd4-e502-49b8-9c6f-b59445bf720b": "YubiKey 5 FIPS Series",
    "d8522d9f-575b-4866-88a9-ba99fa02f35b": "YubiKey Bio Series",
}


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
        return self.name or NAMES.get(str(self.aaguid), UNNAMED)

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

    after_restore: ClassVar[AfterRestore] = Journaled((Revocation("passkey", ending="remove_again"),))

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


class AdminChallenge(Challenge):
    user = models.ForeignKey(AdminUser, null=True, on_delete=models.CASCADE, related_name="webauthn_challenges")

    class Meta:
        verbose_name = "admin webauthn challenge"
        indexes = [models.Index(fields=["expires_at"], name="admin_challenge_expiry")]


class EndUserChallenge(Challenge, ClosedByRestore, TenantModel):
    user = models.ForeignKey(EndUser, null=True, on_delete=models.CASCADE, related_name="webauthn_challenges")

    class Meta:
        verbose_name = "end user webauthn challenge"
        indexes = [models.Index(fields=["expires_at"], name="end_user_challenge_expiry")]

"""TOTP secrets and backup codes, in the database of the user they protect."""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import Q

from identity_platform.restoring import AfterRestore, Journaled, RestoredRow, Revocation
from mfa.factor_models import Factor, remove_factors
from tenants.models import TenantModel
from userflow.accounts.models import Account, AdminUser, EndUser
from userflow.accounts.session_models import Expiring


class TotpSecret(Factor, Expiring):
    """A sealed shared secret. A user may have several unconfirmed ones for ten minutes, and one confirmed one."""

    secret_sealed = models.BinaryField(editable=False)
    expires_at = models.DateTimeField()
    confirmed_at = models.DateTimeField(null=True)
    # The last time step whose code was accepted; older steps and this one are not accepted again (RFC 6238 section 5.2).
    last_step = models.BigIntegerField(null=True)

    kind = "totp"

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return "Authenticator app"

    @classmethod
    def expired(cls, moment: datetime) -> Q:
        """Not confirmed in time."""
        return super().expired(moment) & Q(confirmed_at=None)

    def summary(self) -> dict[str, object]:
        """Return the authenticator as lists of factors show it, with the time of its confirmation."""
        return {**super().summary(), "created_at": self.confirmed_at}


class AdminTotpSecret(TotpSecret):
    user = models.ForeignKey(AdminUser, on_delete=models.CASCADE, related_name="totp_secrets")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user"], condition=Q(confirmed_at__isnull=False), name="admin_totp_one_confirmed"
            )
        ]
        indexes = [models.Index(fields=["expires_at"], name="admin_totp_expiry")]


class EndUserTotpSecret(TotpSecret, TenantModel):
    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="totp_secrets")

    after_restore: ClassVar[AfterRestore] = Journaled(
        (Revocation("authenticator app", condition="confirmed_at IS NOT NULL", ending="remove_again"),)
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user"], condition=Q(confirmed_at__isnull=False), name="end_user_totp_one_confirmed"
            )
        ]
        indexes = [models.Index(fields=["expires_at"], name="end_user_totp_expiry")]


class BackupCode(models.Model):
    """A code that replaces the authenticator once. `digest` is HMAC-SHA256 under a key outside the database."""

    user = models.ForeignKey(Account, on_delete=models.CASCADE)
    digest = models.BinaryField()
    created_at = models.DateTimeField(auto_now_add=True)
    used_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True


class AdminBackupCode(BackupCode):
    user = models.ForeignKey(AdminUser, on_delete=models.CASCADE, related_name="backup_codes")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "digest"], name="admin_backup_code_unique")]


class EndUserBackupCode(BackupCode, TenantModel):
    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="backup_codes")

    after_restore: ClassVar[AfterRestore] = Journaled(
        (Revocation("backup code", "user_id, md5(digest)", "used_at IS NULL", ending="remove_again"),)
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "digest"], name="end_user_backup_code_unique")]

    @classmethod
    def remove_again(cls, matches: Sequence[RestoredRow]) -> dict[str, int]:
        """Remove codes of a restored database that were used or replaced since its backup."""
        return remove_factors(cls, matches)

"""Sessions, refresh tokens, attempts, tickets and enrollment windows: one mechanism in two homes.

Everything here protects one user and lives in that user's own database: the global one for admin users, the tenant's
for end users.
"""

import uuid
from datetime import datetime, timedelta
from typing import ClassVar, Final

from django.db import models
from django.utils.timezone import now

from identity_platform.places import place_of
from identity_platform.restoring import AfterRestore, Closed, NoAuthority
from tenants.models import TenantModel
from userflow.accounts.models import Account, AdminUser, EndUser
from userflow.accounts.session_policy import AAL1
from userflow.events import logouts


class Expiring(models.Model):
    """Rows that `tenants.lifecycle.retention` deletes once their time `expires_by` is `kept_for` ago."""

    expires_by: ClassVar[str] = "expires_at"
    kept_for: ClassVar[timedelta] = timedelta(0)

    class Meta:
        abstract = True

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Return which rows have no more use at this time."""
        return models.Q(**{f"{cls.expires_by}__lt": moment - cls.kept_for})


class ClosedByRestore(models.Model):
    """Rows that a restored database must not have: what they allow may have been used or revoked since the backup."""

    after_restore: ClassVar[AfterRestore] = Closed()

    class Meta:
        abstract = True

    @classmethod
    def close_all(cls, moment: datetime) -> None:
        """Delete all rows; `tenants.journals.revocations` calls this after a restore."""
        cls._base_manager.all().delete()


class Session(Expiring):
    """One sign-in of one user; its tokens are rejected once it has ended."""

    user = models.ForeignKey(Account, on_delete=models.CASCADE)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    client_id = models.UUIDField(null=True)
    # The verified authentication methods, and their assurance level (userflow.accounts.session_policy).
    amr: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    acr = models.CharField(max_length=8, default=AAL1)
    # The last time the user was verified: the sign-in, or a step-up since.
    auth_time = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(default=now)
    # The idle limit as it was at the last use, never past the absolute limit.
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    end_reason = models.CharField(max_length=32, blank=True, default="")
    address = models.CharField(max_length=45, blank=True, default="")
    user_agent = models.CharField(max_length=255, blank=True, default="")

    # For so long a session that is over, with its refresh tokens, is still shown in lists and known to a replayed token.
    kept_for = timedelta(days=30)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.id)

    @property
    def place(self) -> str:
        """Where it was opened, in words of the active language; "" if that is not known."""
        return place_of(self.address)


class AdminSession(Session):
    # The index of the list begins with it.
    user = models.ForeignKey(AdminUser, on_delete=models.CASCADE, related_name="sessions", db_index=False)

    class Meta:
        # None on columns that each use or refresh writes: see `EndUserSession`.
        indexes = [models.Index(fields=["user", "-created_at"], name="admin_session_user")]


class EndUserSession(Session, TenantModel):
    """A session of an end user: of an application that signed the user in itself, of a browser at the hosted pages, or
    of an application that the browser's session has signed in by OpenID Connect. The last one ends with its parent; that of a
    device (RFC 8628) has none.
    """

    # The index of the list begins with it.
    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="sessions", db_index=False)
    # Of an application's session: that of the browser that opened it, unless the application is on another device.
    parent = models.ForeignKey("self", null=True, on_delete=models.CASCADE, related_name="children", db_index=False)
    # Of a browser's session: SHA-256 of its cookie.
    browser_digest = models.BinaryField(null=True, unique=True)
    # What OpenID Connect has granted: scopes, and audiences of access tokens. The others have no audiences: their
    # tokens are for the platform's API.
    scopes: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list, db_default=[])
    audiences: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list, db_default=[])
    # Claims that the application has asked for by name (OpenID Connect Core section 5.5).
    id_token_claims: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list, db_default=[])
    userinfo_claims: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list, db_default=[])
    # Thumbprint of the key that the tokens are bound to (RFC 9449 section 6.1), or of the certificate, with a prefix
    # (`userflow.sessions.sender_constraint`): a release that knows no certificates then accepts no proof for it.
    dpop_jkt = models.CharField(max_length=64, blank=True, default="", db_default="")
    # The application gets a logout token when the session ends.
    backchannel_logout = models.BooleanField(default=False, db_default=False)
    # Of a sign-in by password of a user without a factor: SHA-256 of its enrollment ticket until that is used, and the network
    # of its window, empty if it opened none. They stand here because hardly any sign-in is followed by an enrollment
    # (`userflow.credentials.tickets`).
    enrollment_digest = models.BinaryField(null=True)
    enrollment_network = models.CharField(max_length=50, null=True)

    after_restore: ClassVar[AfterRestore] = Closed()

    class Meta:
        # None on columns that each use or refresh writes (`last_used_at`, `expires_at`): PostgreSQL then changes the row only,
        # and no index (a heap-only tuple update). The purge of expired sessions reads the table instead.
        indexes = [
            models.Index(fields=["user", "-created_at"], name="end_user_session_user"),
            models.Index(fields=["-created_at"], name="end_user_session_newest_first"),
            models.Index(fields=["parent"], condition=models.Q(parent__isnull=False), name="end_user_session_parent"),
            models.Index(
                fields=["client_id"],
                condition=models.Q(backchannel_logout=True, ended_at=None),
                name="end_user_session_logout",
            ),
        ]

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """As every session; that of a browser stays while an application's session needs it."""
        living = cls._base_manager.filter(parent_id=models.OuterRef("pk"), expires_at__gte=moment - cls.kept_for)
        return super().expired(moment) & ~models.Q(models.Exists(living))

    @classmethod
    def close_all(cls, moment: datetime) -> None:
        """After a restore every user signs in again, also at applications that keep a session of their own."""
        logouts.write(logouts.of_sessions(cls._base_manager.filter(expires_at__gte=moment)))
        cls._base_manager.filter(ended_at=None).update(ended_at=moment, end_reason="restored")


class RefreshToken(Expiring):
    """One link of a session's chain of refresh tokens. `digest` is SHA-256 of the whole token."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE)

    digest = models.BinaryField(primary_key=True)
    issued_at = models.DateTimeField(auto_now_add=True)
    used_at = models.DateTimeField(null=True)
    # The response of the winner of a race, for the loser within ten seconds. Empty once the successor was used: a token that
    # is presented after that is stolen.
    successor_sealed = models.BinaryField(null=True)

    # Of a session that goes on: past the longest life of a token a replay is rejected by its own expiry.
    expires_by, kept_for = "used_at", timedelta(days=90)

    class Meta:
        abstract = True
        indexes = [
            # A refresh empties the response that its predecessor has kept: one row, of however many refreshes before.
            models.Index(fields=["session"], condition=models.Q(successor_sealed__isnull=False), name="%(class)s_kept"),
        ]


class AdminRefreshToken(RefreshToken):
    session = models.ForeignKey(AdminSession, on_delete=models.CASCADE, related_name="refresh_tokens")


class EndUserRefreshToken(RefreshToken, TenantModel):
    session = models.ForeignKey(EndUserSession, on_delete=models.CASCADE, related_name="refresh_tokens")

    after_restore: ClassVar[AfterRestore] = NoAuthority("They end with their session, which is closed.")


class Attempts(Expiring):
    """Failed attempts at one factor of one user by one kind of caller.

    `subject` is the user's id, or a keyed digest of the name in the request: unknown names are counted and locked
    too, so a lock does not tell who exists.
    """

    subject = models.CharField(max_length=64)
    factor = models.CharField(max_length=16)
    # The budget, see `userflow.credentials.attempts`: the user's own session has one of its own.
    caller = models.CharField(max_length=8)
    failures = models.PositiveIntegerField(default=0)
    locked_until = models.DateTimeField(null=True)
    updated_at = models.DateTimeField(auto_now=True)

    # Longer than `attempts.FORGOTTEN_AFTER`, after which a counter starts again anyway.
    expires_by, kept_for = "updated_at", timedelta(days=2)

    class Meta:
        abstract = True


class AdminAttempts(Attempts):
    class Meta:
        constraints = [models.UniqueConstraint(fields=["subject", "factor", "caller"], name="admin_attempts_unique")]


class EndUserAttempts(Attempts, TenantModel):
    after_restore: ClassVar[AfterRestore] = NoAuthority("They only limit.")

    class Meta:
        # No index on `updated_at`, which each attempt writes.
        constraints = [models.UniqueConstraint(fields=["subject", "factor", "caller"], name="end_user_attempts_unique")]


# Purposes of tickets that may add factors. A pass is issued by an admin: it works like an enrollment ticket, in every
# enrollment mode, for one factor.
ENROLLMENT: Final = "enrollment"
PASS: Final = "enrollment_pass"


class Ticket(Expiring):
    """Short-lived proof of a finished first step; 256 bits, stored hashed.

    `purpose` is `second_step` (a login that waits for its second factor; ends with one success), `enrollment` (may add
    factors while it lasts) or `proof` (a step-up of the session, for one request that needs a proof). `remembered` is a
    browser that skips the second step for some days; each use replaces it.
    """

    user = models.ForeignKey(Account, on_delete=models.CASCADE)

    digest = models.BinaryField(primary_key=True)
    purpose = models.CharField(max_length=16)
    client_id = models.UUIDField(null=True)
    amr: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    wrong_codes = models.PositiveSmallIntegerField(default=0)
    # Of a proof token: the only session that may use it. Of a remembered browser: the session that it was last used for.
    session_id = models.UUIDField(null=True)
    # Of an enrollment ticket that a login issued: the digest of the login's own ticket, which waits for the factor.
    login_digest = models.BinaryField(null=True)
    # Factor kinds that this ticket has added.
    spent_on: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    # Kinds of factors that one ticket may add.
    MOST_KINDS: ClassVar[dict[str, int]] = {ENROLLMENT: 2, PASS: 1}

    class Meta:
        abstract = True

    def may_add(self, kind: str) -> bool:
        """Return whether this enrollment ticket or pass may still add a factor of this kind."""
        return kind not in self.spent_on and len(self.spent_on) < self.MOST_KINDS[self.purpose]


class AdminTicket(Ticket):
    user = models.ForeignKey(AdminUser, on_delete=models.CASCADE, related_name="tickets")

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="admin_ticket_expiry")]


class EndUserTicket(Ticket, ClosedByRestore, TenantModel):
    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="tickets")

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="end_user_ticket_expiry")]


class EnrollmentWindow(Expiring):
    """For some minutes after registration or a password login, the same address may enroll without a header.

    Only opened while the user has no confirmed factor (proof level 3 in docs/security-model.md). That of a sign-in that
    opened an end user's session is a column of the session.
    """

    user = models.ForeignKey(Account, on_delete=models.CASCADE)

    # IPv4 /32 or IPv6 /64 of the opener.
    network = models.CharField(max_length=50)
    cause = models.CharField(max_length=16)
    opened_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()

    class Meta:
        abstract = True


class AdminEnrollmentWindow(EnrollmentWindow):
    user = models.ForeignKey(AdminUser, on_delete=models.CASCADE, related_name="enrollment_windows")

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="admin_window_expiry")]


class EndUserEnrollmentWindow(EnrollmentWindow, ClosedByRestore, TenantModel):
    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="enrollment_windows")

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="end_user_window_expiry")]

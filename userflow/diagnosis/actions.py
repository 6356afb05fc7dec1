"""Why an end user cannot sign in: what prevents it now, and the newest sign-ins that were rejected. And end a lock."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from identity_platform.audit.models import TenantEvent
from identity_platform.audit.writer import record_for_tenant
from identity_platform.postgresql.row_errors import first_or
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.entering.lookup import TenantContext
from tenants.states import Purpose, State
from userflow.accounts.models import EndUser
from userflow.accounts.principals import END_USER, Principal
from userflow.accounts.rank import must_outrank
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_policy import AAL2, required_acr
from userflow.accounts.sources import is_foreign
from userflow.credentials import attempts, email_verification
from userflow.credentials.attempts import EMAIL_CODE
from userflow.errors import UnknownUser
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.permissions import editing_users, reading, require

# Rejected sign-ins are searched among this many of the newest events about the user, so that the cost is bounded.
SEARCHED_EVENTS: Final = 200
SHOWN_REJECTIONS: Final = 5
# Events about a user who could not sign in. The reason of the first one is in its details.
REJECTIONS: Final = (
    "signin.refused",
    "signin.address_not_proven",
    "signin.factor_missing",
    "factor.refused",
    "password.refused",
    "device.reused",
)


# The method that signs in without a password.
PASSKEY: Final = "webauthn"


class Cause(StrEnum):
    """What prevents a sign-in, or may explain a failed one."""

    TENANT_SUSPENDED = "tenant_suspended"
    TENANT_UNAVAILABLE = "tenant_unavailable"
    DEACTIVATED = "deactivated"
    LOCKED = "locked"
    ADDRESS_NOT_VERIFIED = "address_not_verified"
    NO_PASSWORD = "no_password"
    PASSWORD_ELSEWHERE = "password_elsewhere"
    FACTOR_MISSING = "factor_missing"
    WRONG_SECRET = "wrong_secret"


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause. Failed attempts have a factor (`password`, `totp`, ...) and a budget (`userflow.credentials.attempts`)."""

    cause: Cause
    factor: str = ""
    budget: str = ""
    failures: int = 0
    # The end of a lock, or the last failed attempt.
    at: datetime | None = None

    @property
    def prevents_sign_in(self) -> bool:
        """Whether a sign-in with right credentials fails now.

        Locks of codes that verify an address, and of the user's own session, concern other steps.
        """
        if self.cause is Cause.LOCKED:
            return self.factor != EMAIL_CODE and self.budget != attempts.SIGNED_IN
        return self.cause is not Cause.WRONG_SECRET


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejected sign-in of the audit log."""

    at: datetime
    action: str
    details: Mapping[str, object]
    address: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What prevents the sign-in, most important first. `rejections` is None for a caller who may not read the audit log."""

    findings: list[Finding]
    rejections: list[Rejection] | None

    @property
    def is_prevented(self) -> bool:
        """Whether a sign-in with right credentials fails now."""
        return any(finding.prevents_sign_in for finding in self.findings)


def diagnose_sign_in(*, tenant_id: UUID, user_id: UUID, by: Principal) -> Diagnosis:
    """Return why the end user cannot sign in, or could not lately. Rejections need `audit:read` as well.

    Raises InsufficientScope, UnknownUser, UnknownTenant, TenantSuspended, TenantBusy.
    """
    require(by, "endusers:read")
    with in_tenant(tenant_id, reading(by)) as tenant:
        user = first_or(EndUser.objects.filter(pk=user_id), UnknownUser)
        findings = [*_of_tenant(tenant), *_of_user(user, tenant), *_of_attempts(user)]
        rejections = _rejections(user) if by.may("audit:read") else None
    return Diagnosis(sorted(findings, key=lambda finding: not finding.prevents_sign_in), rejections)


def _of_tenant(tenant: TenantContext) -> Iterator[Finding]:
    if tenant.status is State.SUSPENDED:
        yield Finding(Cause.TENANT_SUSPENDED)
    elif not tenant.allows(Purpose.SIGN_IN):
        yield Finding(Cause.TENANT_UNAVAILABLE)


def _of_user(user: EndUser, tenant: TenantContext) -> Iterator[Finding]:
    if not user.active:
        yield Finding(Cause.DEACTIVATED)
    if email_verification.is_unverified(user, tenant):
        yield Finding(Cause.ADDRESS_NOT_VERIFIED)
    if not user.password and PASSKEY not in user.mfa_methods:
        yield Finding(Cause.PASSWORD_ELSEWHERE if is_foreign(user) else Cause.NO_PASSWORD)
    if not user.mfa_methods and required_acr(END_USER, tenant.settings) == AAL2:
        yield Finding(Cause.FACTOR_MISSING)


def _of_attempts(user: EndUser) -> Iterator[Finding]:
    for counter in attempts.failed_attempts(END_USERS, user.pk):
        locked = attempts.is_locked(counter)
        at = counter.locked_until if locked else counter.updated_at
        yield Finding(
            Cause.LOCKED if locked else Cause.WRONG_SECRET, counter.factor, counter.caller, counter.failures, at
        )


def _rejections(user: EndUser) -> list[Rejection]:
    newest = TenantEvent.objects.filter(target_id=str(user.pk)).order_by("-id")[:SEARCHED_EVENTS]
    events = TenantEvent.objects.filter(pk__in=newest.values("pk"), action__in=REJECTIONS).order_by("-id")
    return [Rejection(event.at, event.action, event.details, event.address) for event in events[:SHOWN_REJECTIONS]]


def unlock_end_user(*, tenant_id: UUID, user_id: UUID, by: Principal) -> int:
    """Reset the counters of failed attempts of an end user, and with them all locks. Return how many counters there were.

    A stolen session could guess without a limit if it could reset the counters, so it needs a recent proof. Raises
    InsufficientScope, InsufficientAuthentication, UnknownUser, GrantsMoreThanHeld (a user who holds more than the caller).
    """
    require(by, "endusers:write")
    require_assurance(Action.RESET_FACTORS, by)
    with in_tenant(tenant_id, editing_users(by)), tenant_atomic():
        # The user before the counters, as in a sign-in: another order could deadlock.
        user = first_or(EndUser.objects.select_for_update(no_key=True).filter(pk=user_id), UnknownUser)
        must_outrank(by, user)
        reset = attempts.forget(END_USERS, user.pk)
        record_for_tenant("end_user.unlocked", target=("end_user", user.pk), details={"counters": reset})
    return reset

"""Enrollment passes: how an admin lets a user who has no usable second factor enroll one.

Admins enroll no factor on behalf of a user. A pass works like an enrollment ticket, also where `enrollment_mode` is
`bearer`, for one factor and one hour.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from django.utils.timezone import now

from mfa import notices
from mfa.enrollment import address_is_missing
from mfa.errors import NotForYourself, PassNotPossible
from tenants.states import Purpose
from userflow.accounts.models import Account, AdminUser
from userflow.accounts.permissions_catalogue import FACTORS
from userflow.accounts.principals import Principal
from userflow.accounts.rank import must_outrank
from userflow.accounts.realms import END_USERS, Realm
from userflow.credentials import tickets
from userflow.errors import UnknownUser
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.permissions import ADMIN, OPERATOR, editing_users, require
from userflow.signin.caller import is_this_user

Delivery = Literal["mail", "show"]


@dataclass(frozen=True, slots=True)
class EnrollmentPass:
    """An issued pass. `token` is set only when the caller asked to be shown it."""

    user_id: UUID
    expires_at: datetime
    token: str | None


def issue_enrollment_pass(
    *, realm: Realm, tenant_id: UUID | None, user_id: UUID, reason: str, by: Principal | None, deliver: Delivery
) -> EnrollmentPass:
    """Issue a pass to a user without a second factor; it replaces the user's older passes.

    `deliver` is `mail` (the user receives the pass) or `show` (the caller does, and the user is told). `by=None` is a
    command on the machine. Raises InsufficientScope, NotForYourself, GrantsMoreThanHeld (403), InsufficientAuthentication
    (401), UnknownUser (404), PassNotPossible (409), UnknownTenant, TenantSuspended, TenantBusy.
    """
    with user_for_admin(realm, tenant_id, user_id, by=by, action=Action.ISSUE_ENROLLMENT_PASS) as user:
        if user.mfa_methods:
            raise PassNotPossible
        if address_is_missing(realm, user):
            raise PassNotPossible("The user has not verified the e-mail address yet, which this tenant requires first.")
        return create_pass(realm, user, reason=reason, deliver=deliver)


@contextmanager
def user_for_admin(
    realm: Realm, tenant_id: UUID | None, user_id: UUID, *, by: Principal | None, action: Action
) -> Iterator[Account]:
    """Yield the active user, locked in a transaction of the realm, to an admin who resets factors or issues a pass.

    Raises what `issue_enrollment_pass` raises, except PassNotPossible.
    """
    if by is not None:
        require(by, FACTORS if realm is END_USERS else "admins:write", OPERATOR, ADMIN)
        require_assurance(action, by)
    with realm.entered(tenant_id, editing_users(by) if by else Purpose.WRITE), realm.atomic():
        user = realm.lock_user(user_id)
        if user is None:
            raise UnknownUser
        if isinstance(user, AdminUser) and by is not None and by.tenant_id not in (None, user.tenant_id):
            raise UnknownUser
        if by is not None:
            if is_this_user(realm, user, by):
                raise NotForYourself
            must_outrank(by, user)
        yield user


def create_pass(realm: Realm, user: Account, *, reason: str, deliver: Delivery) -> EnrollmentPass:
    """Store a pass, audit it with its reason and mail the user. Call it in the transaction that has locked the user."""
    tickets.end_tickets(realm, user.pk, purposes=[tickets.PASS])
    token = tickets.issue_ticket(realm, user, tickets.PASS)
    expires_at = now() + tickets.LIFETIME[tickets.PASS]
    realm.record_about(user, "enrollment_pass.issued", {"reason": reason, "delivery": deliver})
    notices.mail_enrollment_pass(realm, user, token=token if deliver == "mail" else "", expires_at=expires_at)
    return EnrollmentPass(user.pk, expires_at, token if deliver == "show" else None)

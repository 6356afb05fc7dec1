"""Tickets (proof of a finished first step) and enrollment windows.

Ticket and window of a sign-in that opens an end user's session are columns of that session, and end with it. The ticket gets a
row when it is used.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db.models import F, QuerySet
from django.utils.timezone import now

from identity_platform.api.client_address import network_of
from identity_platform.audit.origin import current_origin
from identity_platform.crypto import hash_token, new_token
from identity_platform.postgresql.row_errors import first_or
from tenants.settings.declarations import LONGEST_REMEMBERED_DAYS
from userflow.accounts.models import Account
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.accounts.session_models import (
    ENROLLMENT,
    PASS,
    EndUserSession,
    EndUserTicket,
    EnrollmentWindow,
    Ticket,
)
from userflow.credentials import email_verification
from userflow.errors import NotSignedInByTicket

__all__ = ["ENROLLMENT", "PASS"]

SECOND_STEP: Final = "second_step"
PASSWORD_RESET: Final = "password_reset"
PROOF: Final = "proof"
# A browser that skips the second step (`userflow.signin.remembered_browsers`); a tenant can only shorten its life.
REMEMBERED: Final = "remembered"
# What ends when the user has another address: links went to the old one, and sign-ins were begun with it.
OF_ADDRESS: Final = (PASSWORD_RESET, SECOND_STEP, REMEMBERED)
LIFETIME = {
    SECOND_STEP: timedelta(minutes=10),
    ENROLLMENT: timedelta(minutes=15),
    PASS: timedelta(hours=1),
    PASSWORD_RESET: timedelta(minutes=30),
    PROOF: timedelta(minutes=5),
    REMEMBERED: timedelta(days=LONGEST_REMEMBERED_DAYS),
}
WRONG_CODES_ALLOWED = 5
LOGIN_WINDOW = timedelta(minutes=15)
# Causes of windows. Users who registered may sign up with a passkey in theirs, until they first sign in.
LOGIN: Final = "login"
REGISTRATION: Final = frozenset({"registration", "invitation"})


def issue_ticket(
    realm: Realm,
    user: Account,
    purpose: str,
    *,
    client_id: UUID | None = None,
    amr: tuple[str, ...] = (),
    session_id: UUID | None = None,
) -> str:
    """Issue a ticket for the user; only its hash is stored. `session_id` is the only session that may use a proof token."""
    ticket, token = new_ticket(realm, user, purpose)
    ticket.client_id, ticket.amr, ticket.session_id = client_id, list(amr), session_id
    ticket.save(force_insert=True)
    return token


def new_ticket(realm: Realm, user: Account, purpose: str) -> tuple[Ticket, str]:
    """Return an unsaved ticket and its token."""
    token = new_token()
    expires_at = now() + LIFETIME[purpose]
    return realm.tickets(digest=hash_token(token), purpose=purpose, user_id=user.pk, expires_at=expires_at), token


def find_ticket(realm: Realm, token: str, *purposes: str) -> Ticket:
    """Return the ticket of one of these purposes while it is valid: not used, not expired, its user active.

    Raises NotSignedInByTicket (401) otherwise, for every reason alike.
    """
    valid = _valid(realm, hash_token(token), purpose__in=purposes, wrong_codes__lt=WRONG_CODES_ALLOWED)
    return first_or(valid.select_related("user").filter(user__active=True), NotSignedInByTicket)


def find_enrollment_ticket(realm: Realm, user: Account, token: str, *purposes: str) -> Ticket:
    """Return the enrollment ticket, or pass, of this active user while it is valid.

    That of a session is not stored before `consume_ticket_for`. Raises NotSignedInByTicket (401) for every reason alike.
    """
    digest = hash_token(token)
    valid = _valid(realm, digest, user_id=user.pk, purpose__in=purposes, wrong_codes__lt=WRONG_CODES_ALLOWED)
    ticket = valid.first() or _unused_of_session(realm, user, digest)
    if ticket is None or not user.active:
        raise NotSignedInByTicket
    return ticket


def _unused_of_session(realm: Realm, user: Account, digest: bytes) -> Ticket | None:
    session = _sign_ins(user.pk).filter(ended_at=None, enrollment_digest=digest).first() if realm is END_USERS else None
    if session is None:
        return None
    expires_at = session.created_at + LIFETIME[ENROLLMENT]
    return EndUserTicket(digest=digest, purpose=ENROLLMENT, user_id=user.pk, expires_at=expires_at)


def _with_enrollment(user_id: UUID) -> QuerySet[EndUserSession]:
    """Return the end user's sessions that have opened enrollment, until that is ended."""
    return EndUserSession._default_manager.filter(user_id=user_id).exclude(enrollment_network=None)


def _sign_ins(user_id: UUID) -> QuerySet[EndUserSession]:
    """Return those of them whose ticket and window have not expired."""
    return _with_enrollment(user_id).filter(created_at__gt=now() - LOGIN_WINDOW)


def _valid(realm: Realm, digest: bytes | memoryview, **conditions: object) -> QuerySet[Ticket]:
    """Return the ticket of this digest if it was not used and has not expired."""
    return realm.tickets._default_manager.filter(digest=digest, used_at=None, expires_at__gt=now(), **conditions)


def count_wrong_code(realm: Realm, ticket: Ticket) -> None:
    """Count one try against the ticket before the code is compared. Raises NotSignedInByTicket (401).

    Call it after `attempts.count`: a try that is rejected because the counter is locked must not use the ticket up.
    """
    counted = realm.tickets._default_manager.filter(
        digest=ticket.digest, used_at=None, wrong_codes__lt=WRONG_CODES_ALLOWED
    ).update(wrong_codes=F("wrong_codes") + 1)
    if not counted:
        raise NotSignedInByTicket


def forget_devices(realm: Realm, user_id: UUID) -> int:
    """Forget the browsers in which the user skips the second step; return how many there were.

    A browser is remembered for what was verified in it. It is forgotten when that goes, or may have been in foreign hands: a
    factor is removed, replaced or reset, backup codes are replaced, other sessions end by request, a cookie was copied. A new
    password and the end of all sessions end every ticket, a new address those `OF_ADDRESS`. A further factor takes nothing
    away: sessions stay then, and so do these browsers.
    """
    return end_tickets(realm, user_id, purposes=[REMEMBERED])


def consume_ticket(realm: Realm, ticket: Ticket) -> None:
    """Use the ticket up. Of two callers at once one wins, the other gets NotSignedInByTicket (401)."""
    if not _valid(realm, ticket.digest).update(used_at=now()):
        raise NotSignedInByTicket


def consume_proof_token(realm: Realm, token: str, *, user_id: UUID, session_id: UUID | None) -> tuple[str, ...]:
    """Use up a proof token of this user and session; return the methods (RFC 8176) that its step-up has verified.

    Of two callers at once one wins. Raises NotSignedInByTicket (401).
    """
    valid = _valid(realm, hash_token(token), purpose=PROOF, user_id=user_id, session_id=session_id)
    with realm.atomic():
        ticket = valid.select_for_update().first()
        if ticket is None or session_id is None:
            raise NotSignedInByTicket
        ticket.used_at = now()
        ticket.save(update_fields=["used_at"])
    return tuple(ticket.amr)


def consume_ticket_for(realm: Realm, ticket: Ticket, kind: str) -> None:
    """Use an enrollment ticket or pass for one kind of factor.

    Of two callers at once one wins, the other gets NotSignedInByTicket (401).
    """
    with realm.atomic():
        if isinstance(ticket, EndUserTicket) and ticket._state.adding:
            unused = _sign_ins(ticket.user_id).filter(ended_at=None, enrollment_digest=ticket.digest)
            if unused.update(enrollment_digest=None):
                ticket.save(force_insert=True)
        locked = _valid(realm, ticket.digest, purpose=ticket.purpose).select_for_update().first()
        if locked is None or not locked.may_add(kind):
            raise NotSignedInByTicket
        locked.spent_on = [*locked.spent_on, kind]
        locked.save(update_fields=["spent_on"])


def window_network(realm: Realm) -> str:
    """Return the network for which the caller's window opens and counts, or "" if there is no window.

    There is none for an address that is unknown or may be shared by the callers of a proxy, nor for admin users of a
    production platform.
    """
    origin = current_origin()
    if not origin.address or not origin.address_is_own or (realm is ADMINS and not settings.EMBEDDED):
        return ""
    return network_of(origin.address)


def new_window(realm: Realm, user: Account, *, cause: str) -> EnrollmentWindow:
    """Return an unsaved window for the caller's network; the network is empty if there must be no window."""
    lasts = LOGIN_WINDOW if cause == LOGIN else timedelta(minutes=settings.ENROLLMENT_WINDOW_MINUTES)
    return realm.windows(user_id=user.pk, network=window_network(realm), cause=cause, expires_at=now() + lasts)


def is_window_open(realm: Realm, user_id: UUID, *, causes: Collection[str] = ()) -> bool:
    """Return whether the caller's network may enroll for this user, by a window of any cause or of one of `causes`.

    That of a session is open until the session ends or a later sign-in comes from another network.
    """
    network = window_network(realm)
    if not network:
        return False
    windows = realm.windows._default_manager.filter(user_id=user_id, network=network, expires_at__gt=now())
    if causes:
        return windows.filter(cause__in=causes).exists()
    return windows.exists() or (
        realm is END_USERS and _sign_ins(user_id).filter(ended_at=None, enrollment_network=network).exists()
    )


def let_enroll(session: EndUserSession) -> str:
    """Let an unsaved session of a sign-in by password open enrollment; return the ticket for X-Enrollment-Ticket."""
    token = new_token()
    session.enrollment_digest, session.enrollment_network = hash_token(token), window_network(END_USERS)
    return token


def open_enrollment(realm: Realm, user: Account, *, cause: str) -> str | None:
    """Open window and enrollment ticket for a user without a factor; return the ticket for X-Enrollment-Ticket.

    Return None, and open nothing, before the address is verified where the tenant requires that. Call it in the realm's
    transaction.
    """
    if email_verification.is_unverified(user, realm.tenant()):
        return None
    return _open_enrollment(realm, user, cause=cause)


def open_waiting_login(realm: Realm, user: Account, *, client_id: UUID | None, amr: tuple[str, ...]) -> tuple[str, str]:
    """Let a login wait for the user's first factor. The user's address is verified if it must be.

    Return the ticket that completes the login and the one that enrolls the factor; using the second does not end the first.
    Call it in the realm's transaction.
    """
    login = issue_ticket(realm, user, SECOND_STEP, client_id=client_id, amr=amr)
    return login, _open_enrollment(realm, user, cause=LOGIN, login=login)


def _open_enrollment(realm: Realm, user: Account, *, cause: str, login: str | None = None) -> str:
    window = new_window(realm, user, cause=cause)
    if cause == LOGIN:
        # The opener of a window at another address need not be the user.
        realm.windows._default_manager.filter(user_id=user.pk).exclude(network=window.network).delete()
        if realm is END_USERS:
            _with_enrollment(user.pk).exclude(enrollment_network=window.network).update(enrollment_network="")
    if window.network:
        window.save(force_insert=True)
    ticket, token = new_ticket(realm, user, ENROLLMENT)
    ticket.login_digest = hash_token(login) if login is not None else None
    ticket.save(force_insert=True)
    return token


def end_tickets(
    realm: Realm, user_id: UUID, *, purposes: Collection[str] = (), keep: bytes | memoryview | None = None
) -> int:
    """End every ticket and window of the user, or the tickets of some purposes. Return the number of tickets.

    `keep` is the digest of an enrollment ticket that stays, with the login's ticket that it was issued together with.
    """
    tickets = realm.tickets._default_manager.filter(user_id=user_id)
    if keep is not None:
        paired = tickets.filter(digest=keep, login_digest__isnull=False).values("login_digest")
        tickets = tickets.exclude(digest=keep).exclude(digest__in=paired)
    if purposes:
        return tickets.filter(purpose__in=purposes).delete()[0]
    close_windows(realm, user_id)
    return tickets.delete()[0]


def close_windows(realm: Realm, user_id: UUID) -> None:
    """Close the user's windows, and end the unused tickets of sessions.

    Call it before tickets are deleted: of one that is used at the same moment either the session or the row is left.
    """
    realm.windows._default_manager.filter(user_id=user_id).delete()
    if realm is END_USERS:
        # Without the time: another instance, whose clock is behind, may still take one that has expired here.
        _with_enrollment(user_id).update(enrollment_digest=None, enrollment_network=None)

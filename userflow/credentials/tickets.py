"""Tickets (proof of a finished first step) and enrollment windows."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import orjson
from django.conf import settings
from django.db import connections
from django.db.models import F
from django.utils.timezone import now

from identity_platform.api.client_address import network_of
from identity_platform.audit.origin import current_origin
from identity_platform.crypto import hash_token, new_token
from identity_platform.postgresql.parts import Part, together
from tenants.context import current_tenant
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.credentials import attempts
from userflow.credentials import email_verification as proofs
from userflow.errors import NotSignedInByTicket

SECOND_STEP: Final = "second_step"
ENROLLMENT: Final = "enrollment"
# Issued by an admin: works like an enrollment ticket, in every enrollment mode, for one factor.
PASS: Final = "enrollment_pass"
PASSWORD_RESET: Final = "password_reset"
PROOF: Final = "proof"
LIFETIME = {
    SECOND_STEP: timedelta(minutes=10),
    ENROLLMENT: timedelta(minutes=15),
    PASS: timedelta(hours=1),
    PASSWORD_RESET: timedelta(minutes=30),
    PROOF: timedelta(minutes=5),
}
WRONG_CODES_ALLOWED = 5
# Kinds of factors that one enrollment ticket, or one enrollment pass, may add.
MOST_KINDS = {ENROLLMENT: 2, PASS: 1}
LOGIN_WINDOW = timedelta(minutes=15)
# What opens a window. Users who registered may sign up with a passkey in theirs, until they first sign in.
LOGIN: Final = "login"
REGISTRATION: Final = frozenset({"registration", "invitation"})


@dataclass(frozen=True, slots=True)
class Spendable:
    """A ticket that is good at the moment."""

    digest: bytes
    purpose: str
    user: Any
    client_id: UUID | None
    amr: list[str]
    spent_on: list[str]
    wrong_codes: int = 0

    def may_add(self, kind: str) -> bool:
        """Whether this enrollment ticket or pass may still add a factor of this kind."""
        return kind not in self.spent_on and len(self.spent_on) < MOST_KINDS[self.purpose]


def issue_ticket(
    realm: Realm,
    user: Any,
    purpose: str,
    *,
    client_id: UUID | None = None,
    amr: tuple[str, ...] = (),
    session_id: UUID | None = None,
) -> str:
    """A new ticket for the user; only its hash is stored. `session_id` is the only session that may use a proof token."""
    token = new_token()
    realm.tickets._default_manager.create(
        digest=hash_token(token),
        purpose=purpose,
        user=user,
        client_id=client_id,
        amr=list(amr),
        session_id=session_id,
        expires_at=now() + LIFETIME[purpose],
    )
    return token


def find_ticket(realm: Realm, token: str, *purposes: str) -> Spendable:
    """Return the ticket of one of these purposes while it is valid: not used, not expired, its user active.

    Raises NotSignedInByTicket (401) otherwise, whatever the reason.
    """
    row: Any = (
        realm.tickets._default_manager.select_related("user")
        .filter(
            digest=hash_token(token),
            purpose__in=purposes,
            used_at=None,
            expires_at__gt=now(),
            wrong_codes__lt=WRONG_CODES_ALLOWED,
            user__active=True,
        )
        .first()
    )
    if row is None:
        raise NotSignedInByTicket
    return Spendable(bytes(row.digest), row.purpose, row.user, row.client_id, row.amr, row.spent_on, row.wrong_codes)


def count_wrong_code(realm: Realm, ticket: Spendable) -> None:
    """One try against the ticket, counted before the code is compared."""
    counted = realm.tickets._default_manager.filter(
        digest=ticket.digest, used_at=None, wrong_codes__lt=WRONG_CODES_ALLOWED
    ).update(wrong_codes=F("wrong_codes") + 1)
    if not counted:
        raise NotSignedInByTicket


def spend_ticket(realm: Realm, ticket: Spendable) -> None:
    """Use it up; of two at once one wins, the other gets NotSignedInByTicket (401)."""
    spent = realm.tickets._default_manager.filter(digest=ticket.digest, used_at=None, expires_at__gt=now()).update(
        used_at=now()
    )
    if not spent:
        raise NotSignedInByTicket


def use_proof_token(realm: Realm, token: str, *, user_id: UUID, session_id: UUID | None) -> tuple[str, ...]:
    """Use up a proof token of this user and session; return the methods (RFC 8176) that its step-up has proven.

    One statement: of two uses at once one wins. Raises NotSignedInByTicket (401).
    """
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(
            f"UPDATE {realm.tickets._meta.db_table} SET used_at = now() WHERE digest = %s AND purpose = %s"
            " AND user_id = %s AND session_id = %s AND used_at IS NULL AND expires_at > now() RETURNING amr::text",
            [hash_token(token), PROOF, user_id, session_id],
        )
        row = cursor.fetchone()
    if row is None:
        raise NotSignedInByTicket
    return tuple(orjson.loads(row[0]))


# A waiting login in the statements of its second step. `trying` takes the ticket before the counter of its user, as
# whoever spends it does: two orders would end in a deadlock. So it asks itself whether the counter is locked, or tries that
# are not looked at would use the ticket up.
WAITING: Final = "waiting"
_WAITING = """
SELECT t.digest, t.user_id, t.client_id, t.amr, {source}.caller FROM {table} t JOIN {source} ON t.user_id = {source}.id
WHERE t.digest = %(waiting_digest)s AND t.purpose = %(waiting_purpose)s AND t.used_at IS NULL AND t.expires_at > now()
  AND t.wrong_codes < %(waiting_allowed)s
"""
_TRIED = """
UPDATE {table} t SET wrong_codes = t.wrong_codes + 1 FROM waiting
WHERE t.digest = waiting.digest AND t.used_at IS NULL AND t.wrong_codes < %(tried_allowed)s AND NOT {locked}
RETURNING waiting.user_id::text AS subject, waiting.caller
"""


def waiting(realm: Realm, token: str, purpose: str, *, source: str) -> Part:
    """`find_ticket` as a part of another statement, for the user whose `id` the part `source` gives.

    `source` also gives `caller`, the budget for tries with the ticket.
    """
    values = {"waiting_digest": hash_token(token), "waiting_purpose": purpose, "waiting_allowed": WRONG_CODES_ALLOWED}
    return Part(WAITING, _WAITING.format(table=realm.tickets._meta.db_table, source=source), values)


def trying(realm: Realm, *, factor: str) -> Part:
    """`count_wrong_code` as a part behind `waiting`, unless the user's counter of `factor` is locked.

    Gives `subject` and `caller` for `attempts.counting`.
    """
    locked = attempts.is_locked(
        realm, subject="waiting.user_id::text", factor="%(tried_factor)s", caller="waiting.caller"
    )
    values = {"tried_allowed": WRONG_CODES_ALLOWED, "tried_factor": factor}
    return Part("tried", _TRIED.format(table=realm.tickets._meta.db_table, locked=locked), values)


def spending(realm: Realm, ticket: Spendable, *, source: str) -> Part:
    """`spend_ticket` as a part of another statement, whose part `source` has locked the ticket and found it good."""
    return Part(
        "ticket_spent",
        f"UPDATE {realm.tickets._meta.db_table} SET used_at = now() FROM {source} WHERE digest = %(ticket_spent_digest)s",
        {"ticket_spent_digest": ticket.digest},
    )


def spend_ticket_on(realm: Realm, ticket: Spendable, kind: str) -> None:
    """Use an enrollment ticket or pass for one kind of factor; of two at once one wins, the other gets
    NotSignedInByTicket."""
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(
            f"UPDATE {realm.tickets._meta.db_table} SET spent_on = spent_on || to_jsonb(%(kind)s::text)"
            " WHERE digest = %(digest)s AND purpose = %(purpose)s AND used_at IS NULL AND expires_at > now()"
            " AND NOT spent_on @> to_jsonb(%(kind)s::text) AND jsonb_array_length(spent_on) < %(most)s",
            {"kind": kind, "digest": ticket.digest, "purpose": ticket.purpose, "most": MOST_KINDS[ticket.purpose]},
        )
        if cursor.rowcount != 1:
            raise NotSignedInByTicket


def window_network(realm: Realm) -> str:
    """The network for which the caller's window opens and counts; empty where there is no window.

    There is none where the address is unknown or may be shared by the callers of a proxy, nor for admin users of a
    platform that others rely on.
    """
    origin = current_origin()
    if not origin.address or not origin.address_is_own or (realm is ADMINS and not settings.EMBEDDED):
        return ""
    return network_of(origin.address)


# Window (none for a caller without an address of its own) and ticket: every sign-in without a factor pays for them. A
# sign-in from another address closes the windows: their opener need not be the user.
_OTHER_WINDOWS = """
DELETE FROM {table} w USING {source} WHERE w.user_id = {source}.id AND w.network <> %(other_windows_network)s::text
"""
_WINDOW = """
INSERT INTO {table} (user_id, network, cause, opened_at, expires_at)
SELECT id, %(window_network)s::text, %(window_cause)s::text, %(window_now)s::timestamptz, %(window_ends)s::timestamptz
FROM {source} WHERE %(window_network)s::text <> ''
"""
_TICKET = """
INSERT INTO {table} (digest, purpose, user_id, amr, wrong_codes, spent_on, created_at, expires_at, login_digest)
SELECT %(ticket_digest)s::bytea, %(ticket_purpose)s::text, id, '[]', 0, '[]', %(ticket_now)s::timestamptz,
  %(ticket_ends)s::timestamptz, %(ticket_login)s::bytea FROM {source}
"""


def opening_enrollment(realm: Realm, *, cause: str, source: str, login: str | None = None) -> tuple[str, list[Part]]:
    """Window and enrollment ticket for the user whose id the part `source` gives, one without a factor.

    Gives the ticket for the header X-Enrollment-Ticket, and the parts of a statement that store both. A login (`cause`)
    closes the windows of other addresses. `login` is the second-step ticket of a sign-in that waits for the factor:
    enrolling with the enrollment ticket does not end it.
    """
    lasting = LOGIN_WINDOW if cause == LOGIN else timedelta(minutes=settings.ENROLLMENT_WINDOW_MINUTES)
    network, moment, token = window_network(realm), now(), new_token()
    window = {
        "window_network": network,
        "window_cause": cause,
        "window_now": moment,
        "window_ends": moment + lasting,
    }
    ticket = {
        "ticket_digest": hash_token(token),
        "ticket_purpose": ENROLLMENT,
        "ticket_now": moment,
        "ticket_ends": moment + LIFETIME[ENROLLMENT],
        "ticket_login": hash_token(login) if login is not None else None,
    }
    windows = realm.windows._meta.db_table
    parts = [
        Part("enrollment_window", _WINDOW.format(table=windows, source=source), window),
        Part("enrollment_ticket", _TICKET.format(table=realm.tickets._meta.db_table, source=source), ticket),
    ]
    if cause == LOGIN:
        values = {"other_windows_network": network}
        parts.append(Part("other_windows", _OTHER_WINDOWS.format(table=windows, source=source), values))
    return token, parts


def open_enrollment(realm: Realm, user: Any, *, cause: str) -> str | None:
    """Open window and enrollment ticket for a user without a factor; return the ticket for X-Enrollment-Ticket.

    Nothing is opened, and None returned, before the address is verified where the tenant requires that.
    """
    if realm is END_USERS and proofs.is_unproven(user, current_tenant()):
        return None
    owner = _owner(user)
    token, parts = opening_enrollment(realm, cause=cause, source=owner.name)
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(*together([owner, *parts], "SELECT"))
    return token


_LOGIN_TICKET = """
INSERT INTO {table} (digest, purpose, user_id, client_id, amr, wrong_codes, spent_on, created_at, expires_at)
SELECT %(login_ticket_digest)s::bytea, %(login_ticket_purpose)s::text, id, %(login_ticket_client)s::uuid,
  %(login_ticket_amr)s::jsonb, 0, '[]', now(), now() + %(login_ticket_lasting)s::interval FROM {source}
"""


def open_waiting_login(realm: Realm, user: Any, *, client_id: UUID | None, amr: tuple[str, ...]) -> tuple[str, str]:
    """Let a login wait for the user's first factor: one statement, for a user whose address is verified if it must be.

    Return the ticket that completes the login and the one that enrolls the factor; using the second does not end the first.
    """
    owner, login = _owner(user), new_token()
    values = {
        "login_ticket_digest": hash_token(login),
        "login_ticket_purpose": SECOND_STEP,
        "login_ticket_client": client_id,
        "login_ticket_amr": orjson.dumps(amr).decode(),
        "login_ticket_lasting": LIFETIME[SECOND_STEP],
    }
    waiting = Part("login_ticket", _LOGIN_TICKET.format(table=realm.tickets._meta.db_table, source=owner.name), values)
    enrollment, parts = opening_enrollment(realm, cause=LOGIN, source=owner.name, login=login)
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(*together([owner, waiting, *parts], "SELECT"))
    return login, enrollment


def _owner(user: Any) -> Part:
    return Part("owner", "SELECT %(owner_id)s::uuid AS id", {"owner_id": user.pk})


def end_tickets(realm: Realm, user: Any, *, purpose: str | None = None, keep: bytes | None = None) -> int:
    """End every ticket and window of the user (row or id), or the tickets of one purpose. Return the number of tickets.

    `keep` is the digest of an enrollment ticket that stays, with the login's ticket that it was issued together with.
    """
    found = realm.tickets._default_manager.filter(user=user)
    if keep is not None:
        paired = found.filter(digest=keep, login_digest__isnull=False).values("login_digest")
        found = found.exclude(digest=keep).exclude(digest__in=paired)
    if purpose is not None:
        return found.filter(purpose=purpose).delete()[0]
    realm.windows._default_manager.filter(user=user).delete()
    return found.delete()[0]

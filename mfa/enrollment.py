"""Who may enrol a factor: the proof ladder (contract.md section 6).

The specification's examples carry no token and name the user by e-mail address. Taken literally, whoever knows an
address could enrol a key for somebody else. So every begin, confirm and finish of every kind of factor asks
`enrollment_proof`, for admin users and end users alike, and a confirmation asks again under the lock of the user's row
(`mfa.factors.claim`).
"""

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from django.utils.timezone import now

from identity_platform.api.ratelimit import network_of
from identity_platform.audit.origin import current_origin
from mfa.errors import NoProof, SomebodyElse
from mfa.people import settings_of
from tenants.context import current_tenant
from tenants.settings import value_of
from userflow.errors import FactorRequired, InsufficientAuthentication, NotSignedInByTicket
from userflow.principals import END_USER, OPERATOR, Principal
from userflow.realms import END_USERS, Realm
from userflow.roles.actions import outranks
from userflow.signin import tickets
from userflow.signin.tickets import Spendable

Kind = Literal["totp", "sms", "webauthn"]
Rung = Literal["bearer", "admin", "ticket", "window"]


@dataclass(frozen=True, slots=True)
class Caller:
    """What a request brings along as proof. Its address is that of the audit trail's origin.

    `principal` is whoever a valid Authorization header speaks for; an invalid one never gets here, it is 401 at the door
    (BearerAuthentication), so it cannot fall through to a lower rung.
    """

    principal: Principal | None = None
    ticket: str | None = None
    user_agent: str = ""
    # Of the confidential client that a call without a login's ticket signs in through.
    client_secret: str | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """The strongest proof at hand for one kind of factor of one user, and what it allows."""

    kind: Kind
    rung: Rung
    may_replace: bool
    # Rung 2: to be spent for this kind when the factor is confirmed.
    ticket: Spendable | None = None
    # Rung 3 where tokens are issued: holds only while the user has no factor of any kind.
    only_as_first: bool = False
    # Rung 1 of the user's own: whose session must stand when the factor is confirmed.
    own: Principal | None = None


def enrollment_proof(
    *, realm: Realm, user: Any, caller: Caller, kind: Kind, needs_replace: bool = False, issues_tokens: bool = False
) -> Proof:
    """The proof that lets the caller add (or with `needs_replace` change or remove) a factor of this kind of the user.

    `issues_tokens` is the stricter rule of the general finishRegistration. Call it inside the realm (`people.entered`)
    at begin and at confirm. Refuses with NoProof or InsufficientAuthentication (401), SomebodyElse (403); then
    nothing may be stored or sent.
    """
    mode = value_of(settings_of(realm, user), "enrollment_mode")
    if caller.principal is not None:
        rung = bearer_rung(realm, user, caller.principal)
        return Proof(kind, rung, may_replace=True, own=caller.principal if rung == "bearer" else None)
    if needs_replace or mode == "bearer" or kind in user.mfa_methods:
        raise NoProof
    if caller.ticket is not None:
        # A ticket that is sent must be good, even where a window is open: who holds a wrong one is to be told.
        return Proof(kind, "ticket", may_replace=False, ticket=_good_ticket(realm, user, caller.ticket, kind))
    if mode != "window" or user.mfa_methods or not has_open_window(realm, user):
        raise NoProof
    return Proof(kind, "window", may_replace=False, only_as_first=issues_tokens)


def bearer_rung(realm: Realm, user: Any, principal: Principal) -> Rung:
    """What a valid token proves about this user's factors: their own fresh sign-in, or an admin's right.

    Refuses with InsufficientAuthentication (401), SomebodyElse (403).
    """
    if is_this_user(realm, user, principal):
        if not principal.is_fresh():
            raise InsufficientAuthentication
        return "bearer"
    if not may_change_others(realm, user, principal):
        raise SomebodyElse
    return "admin"


def is_this_user(realm: Realm, user: Any, principal: Principal | None) -> bool:
    """Whether the principal is that very user: same realm, same tenant, same id."""
    return bool(user.pk == id_in(realm, principal))


def id_in(realm: Realm, principal: Principal | None) -> UUID | None:
    """The id under which the principal is a user of this realm (and tenant); None if it is none."""
    if principal is None:
        return None
    if realm is END_USERS:
        here = principal.kind == END_USER and principal.tenant_id == current_tenant().tenant_id
    else:
        here = principal.is_admin
    return principal.id if here else None


def may_change_others(realm: Realm, user: Any, principal: Principal) -> bool:
    """Whether the principal is an admin who may change this user's factors.

    For end users: an admin of the tenant, or an operator, with `endusers:write`. For admin users the permission is
    `admins:write`. In both cases the admin must hold all of the platform's permissions that the user holds: who can
    enrol a passkey for somebody can sign in as that person.
    """
    if not principal.is_admin:
        return False
    if not principal.meets_policy():
        raise FactorRequired
    tenant_id = current_tenant().tenant_id if realm is END_USERS else user.tenant_id
    if principal.kind != OPERATOR and principal.tenant_id != tenant_id:
        return False
    if realm is END_USERS:
        return principal.may("endusers:write") and outranks(principal, user)
    held = {permission for role in user.roles.all() for permission in role.permissions}
    return principal.may("admins:write") and held <= principal.permissions


def _good_ticket(realm: Realm, user: Any, token: str, kind: Kind) -> Spendable:
    try:
        ticket = tickets.find_ticket(realm, token, tickets.ENROLLMENT)
    except NotSignedInByTicket as problem:
        raise NoProof from problem
    if ticket.user.pk != user.pk or kind in ticket.spent_on or len(ticket.spent_on) >= tickets.KINDS_PER_TICKET:
        raise NoProof
    return ticket


def has_open_window(realm: Realm, user: Any) -> bool:
    """Whether the caller's network opened an enrollment window for the user that still is open."""
    address = current_origin().address
    if not address:
        return False
    return realm.windows._default_manager.filter(user=user, network=network_of(address), expires_at__gt=now()).exists()

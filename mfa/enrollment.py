"""Who may enroll a factor: the four proof levels.

The specification's examples carry no token and name the user by e-mail address. Taken literally, anyone who knows an
address could enroll a key for its user. So every begin, confirm and finish of every kind of factor calls
`enrollment_proof`, for admin users and end users alike, and a confirmation calls `check_again` under the lock of the
user's row (`mfa.factors.lock_and_check`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from identity_platform.api.errors import NotSignedIn
from mfa.errors import NoProof, NotFirstFactor, TokenOfAnotherUser
from mfa.users import settings_of
from tenants.settings.values import effective
from userflow.accounts.models import Account
from userflow.accounts.principals import Principal
from userflow.accounts.realms import Realm
from userflow.accounts.session_models import Ticket
from userflow.accounts.session_policy import AAL2
from userflow.credentials import email_verification as proofs
from userflow.credentials import tickets
from userflow.errors import EmailNotVerified, InsufficientAuthentication, NotSignedInByTicket
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.ending import require_active_session
from userflow.signin.caller import Caller, is_this_user
from userflow.signin.proofs import proof_missing

Kind = Literal["totp", "sms", "webauthn"]
# Kinds of which a user has one: another one replaces it.
ONE_AT_MOST: Final = ("totp", "sms")
# Rows of the action table about it.
ENROLLING: Final = (Action.FIRST_FACTOR, Action.ADD_FACTOR, Action.REPLACE_FACTOR)
ProofLevel = Literal["bearer", "ticket", "pass", "window"]


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof for one kind of factor of one user."""

    kind: Kind
    level: ProofLevel
    # Consumed for this kind when the factor is confirmed.
    ticket: Ticket | None = None
    # The user's own session, which must still be valid when the factor is confirmed.
    principal: Principal | None = None
    # The row of the action table that the request of that session has proven, see `factors.prove_enrollment`.
    proven: Action | None = None
    # The registration answers tokens (general finishRegistration).
    signs_in: bool = False

    @property
    def second_step_only(self) -> bool:
        """Whether a passkey of this proof signs in alone only after a sign-in with the password and this passkey.

        A network address is shared, and an administrator may have read the pass: neither proves that it is the user.
        """
        return self.level in ("window", "pass")


def enrollment_proof(*, realm: Realm, user: Account, caller: Caller, kind: Kind, signs_in: bool = False) -> Proof:
    """Return the proof that lets the caller add a factor of this kind.

    A proof that is sent must be valid and never falls through to a lower level. `signs_in` is the stricter rule of the
    general finishRegistration. Call it inside the realm (`realm.entered`) at begin and at confirm; what a session needs in
    the request too is checked by `factors.prove_enrollment`. Raises NoProof, InsufficientAuthentication (401),
    TokenOfAnotherUser, EmailNotVerified, NotAllowed (a third-party application; 403), NotFirstFactor (409); then nothing may
    be stored or sent.
    """
    mode = effective(settings_of(realm, user))["enrollment_mode"]
    principal = caller.principal
    if principal is not None and not is_this_user(realm, user, principal):
        raise TokenOfAnotherUser
    ticket = _valid_ticket(realm, user, caller.ticket) if caller.ticket is not None else None
    if principal is not None:
        # Sent beside the token, the ticket of a sign-in is the proof in the request.
        beside = ticket if ticket is not None and ticket.purpose == tickets.ENROLLMENT else None
        factor_proof = Proof(kind, "bearer", ticket=beside, principal=principal, signs_in=signs_in)
        _check_session(user, principal, kind)
    elif ticket is not None:
        level: ProofLevel = "pass" if ticket.purpose == tickets.PASS else "ticket"
        factor_proof = Proof(kind, level, ticket=ticket, signs_in=signs_in)
        if (mode == "bearer" and level == "ticket") or (signs_in and level == "pass") or not ticket.may_add(kind):
            raise NoProof
        if kind in user.mfa_methods:
            raise NoProof
    else:
        factor_proof = Proof(kind, "window", signs_in=signs_in)
        if mode != "window" or not _window_allows(realm, user, signs_in=signs_in):
            raise NoProof
    if address_is_missing(realm, user):
        raise EmailNotVerified
    if signs_in and user.mfa_methods:
        raise NotFirstFactor
    return factor_proof


def check_again(realm: Realm, locked: Account, factor_proof: Proof) -> None:
    """Check the proof against the user's locked row and consume it for its kind.

    Of parallel confirmations by ticket, window and session, one enrolls the first factor; the others no longer hold.
    Raises as `enrollment_proof`.
    """
    if factor_proof.principal is not None:
        try:
            require_active_session(realm, factor_proof.principal)
        except NotSignedIn as ended:
            raise NoProof from ended
        action = _check_session(locked, factor_proof.principal, factor_proof.kind)
        # A factor was enrolled or removed since.
        if factor_proof.proven in (None, *ENROLLING) and factor_proof.proven is not action:
            raise proof_missing()
    if factor_proof.ticket is not None and (
        factor_proof.principal is None or factor_proof.proven is Action.FIRST_FACTOR
    ):
        try:
            tickets.consume_ticket_for(realm, factor_proof.ticket, factor_proof.kind)
        except NotSignedInByTicket as ended:
            raise NoProof from ended
        if factor_proof.kind in locked.mfa_methods:
            raise NoProof
    elif factor_proof.principal is None and not _window_allows(realm, locked, signs_in=factor_proof.signs_in):
        raise NoProof
    if factor_proof.signs_in and locked.mfa_methods:
        raise NotFirstFactor


def enrollment_action(methods: Collection[str], kind: str) -> Action:
    """Return the row of the action table for a session that enrolls this kind of factor for a user with these methods."""
    if not methods:
        return Action.FIRST_FACTOR
    return Action.REPLACE_FACTOR if kind in methods and kind in ONE_AT_MOST else Action.ADD_FACTOR


def _check_session(user: Account, principal: Principal, kind: Kind) -> Action:
    """Require of the user's own session what the action table asks for, and return the row.

    The first factor may be enrolled by a session that the tenant's policy accepts for nothing else, but never by one of a
    third-party application.
    """
    action = enrollment_action(user.mfa_methods, kind)
    require_assurance(action, principal)
    # The first factor may be younger than what the principal says of the user.
    if user.mfa_methods and principal.acr != AAL2:
        raise InsufficientAuthentication
    return action


def _valid_ticket(realm: Realm, user: Account, token: str) -> Ticket:
    try:
        return tickets.find_enrollment_ticket(realm, user, token, tickets.ENROLLMENT, tickets.PASS)
    except NotSignedInByTicket as problem:
        raise NoProof from problem


def _window_allows(realm: Realm, user: Account, *, signs_in: bool) -> bool:
    """Whether the caller's network has an open window of this user, who has no factor.

    With `signs_in` the user must have registered in it and never signed in.
    """
    if user.mfa_methods or (signs_in and user.last_login is not None):
        return False
    return tickets.is_window_open(realm, user.pk, causes=tickets.REGISTRATION if signs_in else ())


def address_is_missing(realm: Realm, user: Account) -> bool:
    """Whether the tenant requires a verified e-mail address first, and the user has none."""
    return proofs.is_unverified(user, realm.tenant())

"""Complete a sign-in with a second step: the ticket of the login and a verified factor become tokens.

The attempt is committed before anything is compared (`mfa.queries`), so that parallel guesses are not free.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from mfa import queries
from mfa.queries import Attempt, PasskeyUse, StepUse
from userflow.accounts.models import Account
from userflow.accounts.realms import END_USERS, Realm
from userflow.accounts.session_models import Ticket
from userflow.credentials import attempts, tickets
from userflow.credentials.attempts import Counter
from userflow.errors import NotSignedInByTicket, PasskeyNotVerified
from userflow.signin.caller import Caller
from userflow.signin.pipeline import Completion, SignedIn, completion_of


@dataclass(frozen=True, slots=True)
class Verified:
    """A verified factor, with the sign-in that it completes, if any."""

    user: Account
    method: str
    signed_in: SignedIn[Account] | None


def waiting_login(*, realm: Realm, mfa_token: str | None, user: Account | None) -> Ticket | None:
    """Return the login that waits for this user's second step, or None without a ticket.

    Raises NotSignedInByTicket (401) if the ticket is not valid or belongs to another user.
    """
    if mfa_token is None:
        return None
    ticket = tickets.find_ticket(realm, mfa_token, tickets.SECOND_STEP)
    if user is None or ticket.user.pk != user.pk:
        raise NotSignedInByTicket
    return ticket


def complete_by_enrollment(
    *, realm: Realm, user: Account, login: Ticket | None, amr: tuple[str, ...], caller: Caller
) -> SignedIn[Account] | None:
    """Open the session of the sign-in whose ticket the transaction has consumed; return None without one.

    The proof of the new factor, `amr`, counts as the second step. Call it after `factors.finalize`, which ends the sessions
    from before a first factor. Raises NotSignedInByTicket (401), EmailNotVerified (403), TenantSuspended.
    """
    completion = second_step_completion(user=user, login=login, amr=amr, caller=caller)
    return completion.open(realm, user) if completion is not None else None


def second_step_completion(
    *, user: Account, login: Ticket | None, amr: tuple[str, ...], caller: Caller
) -> Completion | None:
    """Return the sign-in that a second step completes, or None without a login. Raises as `pipeline.completion_of`.

    `amr` tells how the second step was done (RFC 8176 section 2); that of the first step is in the ticket.
    """
    if login is None:
        return None
    return completion_of(user, amr=amr, delivery=caller.delivery, login=login)


# RFC 8176 and the IANA registry of authentication methods: `pop` is proof of possession of a key. With the user verified by
# the authenticator it is two factors in one step.
SECOND_STEP_AMR: Final = ("pop",)
ONLY_STEP_AMR: Final = ("pop", "mfa")


def only_step_completion(
    user: Account, *, client_id: UUID | None, caller: Caller, amr: tuple[str, ...] = ONLY_STEP_AMR
) -> Completion:
    """Return the sign-in that a passkey completes without a password.

    Raises PasskeyNotVerified without an active client, ClientNotAuthenticated (a confidential client without its secret),
    TenantSuspended.
    """
    try:
        return completion_of(user, amr=amr, delivery=caller.delivery, client_id=client_id)
    except NotSignedInByTicket as deactivated:
        raise PasskeyNotVerified from deactivated


def consume_factor(
    *,
    realm: Realm,
    attempt: Attempt,
    kind: str,
    use: StepUse | PasskeyUse | Callable[[], None],
    completion: Completion | None,
    details: Mapping[str, str] | None = None,
) -> SignedIn[Account] | None:
    """Use a verified factor, clear the counted attempts, and open the session of `completion`; all or nothing.

    `use` marks a factor of another kind than those of `mfa.queries` as used, or raises FactorUnusable: of two requests at
    once one wins. Without a completion the success is a verification only. Raises FactorUnusable, NotSignedInByTicket (401, the
    ticket was used meanwhile), EmailNotVerified (403).
    """
    if completion is None and realm is END_USERS and not callable(use):
        queries.use_factor(realm, attempt, kind, use, audit={"kind": kind, **(details or {})})
        return None
    with realm.atomic():
        queries.use_factor(realm, attempt, kind, None if callable(use) else use)
        if callable(use):
            use()
        if completion is not None:
            return completion.open(realm, attempt.user, cleared=Counter(kind, attempt.budget))
        attempts.clear(realm, attempt.user.pk, factor=kind, caller=attempt.budget)
        record(realm, attempt.user, "factor.verified", kind, **(details or {}))
        return None


def record(
    realm: Realm, user: Account | None, action: str, kind: str, *, outcome: str = "success", **details: str
) -> None:
    """Write an audit event about a factor of the user; `user` is None for an unknown one."""
    if user is None:
        realm.record(action, outcome=outcome, details={"kind": kind, **details})
    else:
        realm.record_about(user, action, {"kind": kind, **details}, outcome=outcome)

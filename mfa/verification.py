"""Verify a use of a factor: count the attempt, then compare, then consume the factor in one transaction.

The attempt is committed before anything is compared, so that parallel guesses are not free.
"""

from collections.abc import Callable
from dataclasses import dataclass

from mfa.caller import Caller, is_this_user
from mfa.completion import SessionGrant
from mfa.users import lock_user
from userflow.accounts.models import Account
from userflow.accounts.realms import END_USERS, Realm
from userflow.accounts.session_models import UserTicket
from userflow.credentials import attempts, queries
from userflow.credentials.attempts import Counter
from userflow.sessions.issue import TokenPair


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt of a user at a factor: the login that it would complete, and the budget that it was counted against."""

    user: Account
    login: UserTicket | None
    budget: str


class FactorUnusable(Exception):
    """Another request has used or removed the factor in the meantime."""


def budget_of(realm: Realm, user: Account | None, caller: Caller, login: UserTicket | None) -> str:
    """Return whose attempts are counted: those of the user's own session, of tickets, or of all other callers."""
    if user is not None and is_this_user(realm, user, caller.principal):
        return attempts.SIGNED_IN
    return attempts.UNKNOWN_NETWORK if user is None or login is None else attempts.budget_of_ticket(realm, user.pk)


def count_attempt(*, realm: Realm, user: Account, caller: Caller, mfa_token: str | None, kind: str) -> Attempt:
    """Count an attempt of the user at a factor of this kind. Call it outside a transaction, before the comparison.

    Raises NotSignedInByTicket (401) if `mfa_token` is not valid or of another user, AttemptsLocked (429). An attempt that
    is locked out does not count against the ticket.
    """
    own_session = is_this_user(realm, user, caller.principal)
    if mfa_token is not None:
        login, budget = queries.count_second_step(realm, user, mfa_token, factor=kind, own_session=own_session)
        return Attempt(user, login, budget)
    budget = attempts.SIGNED_IN if own_session else attempts.UNKNOWN_NETWORK
    attempts.count(realm, user.pk, factor=kind, caller=budget)
    return Attempt(user, None, budget)


def consume_factor(
    *,
    realm: Realm,
    attempt: Attempt,
    kind: str,
    consume: Callable[[Account], None],
    grant: SessionGrant | None,
    details: dict[str, str] | None = None,
) -> TokenPair | None:
    """Use a verified factor, clear the counted attempts, and open the session that `grant` describes; all or nothing.

    `consume` marks the factor of the locked user as used, or raises FactorUnusable: of two requests at once one wins.
    Without a grant the success is a verification only. Raises FactorUnusable, NotSignedInByTicket (401, the ticket was
    used meanwhile), EmailNotVerified (403).
    """
    with realm.atomic():
        # The user's row first, then the ticket and the factor, as every change of factors does: other orders can deadlock.
        login = attempt.login
        user = lock_user(realm, attempt.user.pk) if login is None else queries.lock_and_consume(realm, login)
        if user is None:
            raise FactorUnusable
        consume(user)
        if grant is not None:
            return grant.open(realm, user, cleared=Counter(kind, attempt.budget))
        attempts.clear(realm, user.pk, factor=kind, caller=attempt.budget)
        record(realm, user, "factor.verified", kind, **(details or {}))
        return None


def record(
    realm: Realm, user: Account | None, action: str, kind: str, *, outcome: str = "success", **details: str
) -> None:
    """Write an audit event about a factor of the user; `user` is None for an unknown one."""
    realm.record(
        action,
        target=("end_user" if realm is END_USERS else "admin_user", user.pk) if user is not None else None,
        tenant_id=getattr(user, "tenant_id", None),
        outcome=outcome,
        details={"kind": kind, **details},
    )

"""Verify a use of a factor: count the attempt, then compare, then consume the factor in one transaction.

The attempt is committed before anything is compared, so that parallel guesses are not free.
"""

from collections.abc import Callable, Mapping

from mfa import queries
from mfa.completion import SessionGrant
from mfa.queries import Attempt, PasskeyUse, StepUse
from userflow.accounts.models import Account
from userflow.accounts.realms import END_USERS, Realm
from userflow.credentials import attempts
from userflow.credentials.attempts import Counter
from userflow.sessions.issue import TokenPair


def consume_factor(
    *,
    realm: Realm,
    attempt: Attempt,
    kind: str,
    use: StepUse | PasskeyUse | Callable[[], None],
    grant: SessionGrant | None,
    details: Mapping[str, str] | None = None,
) -> TokenPair | None:
    """Use a verified factor, clear the counted attempts, and open the session that `grant` describes; all or nothing.

    `use` marks a factor of another kind than those of `mfa.queries` as used, or raises FactorUnusable: of two requests at
    once one wins. Without a grant the success is a verification only. Raises FactorUnusable, NotSignedInByTicket (401, the
    ticket was used meanwhile), EmailNotVerified (403).
    """
    if grant is None and realm is END_USERS and not callable(use):
        queries.use_factor(realm, attempt, kind, use, audit={"kind": kind, **(details or {})})
        return None
    with realm.atomic():
        queries.use_factor(realm, attempt, kind, None if callable(use) else use)
        if callable(use):
            use()
        if grant is not None:
            return grant.open(realm, attempt.user, cleared=Counter(kind, attempt.budget))
        attempts.clear(realm, attempt.user.pk, factor=kind, caller=attempt.budget)
        record(realm, attempt.user, "factor.verified", kind, **(details or {}))
        return None


def record(
    realm: Realm, user: Account | None, action: str, kind: str, *, outcome: str = "success", **details: str
) -> None:
    """Write an audit event about a factor of the user; `user` is None for an unknown one."""
    realm.record(
        action,
        target=("end_user" if realm is END_USERS else "admin_user", user.pk) if user is not None else None,
        tenant_id=user.home_tenant_id if user is not None else None,
        outcome=outcome,
        details={"kind": kind, **details},
    )

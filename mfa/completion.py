"""Complete a sign-in with a second step: the ticket of the login and a verified factor become tokens.

The attempt is committed before anything is compared (`mfa.queries`), so that parallel guesses are not free.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from identity_platform.audit.origin import set_actor
from mfa import queries
from mfa.caller import Caller
from mfa.queries import Attempt, PasskeyUse, StepUse
from mfa.users import active_client
from tenants import lookup
from tenants.context import current_tenant
from tenants.states import Purpose
from userflow.accounts.models import Account, EndUser
from userflow.accounts.realms import END_USERS, Realm
from userflow.accounts.session_models import Ticket
from userflow.credentials import attempts, tickets
from userflow.credentials.attempts import Counter
from userflow.errors import ClientNotAuthenticated, DirectSignInDisabled, NotSignedInByTicket, PasskeyNotVerified
from userflow.sessions import issue
from userflow.sessions.client_authentication import is_authenticated, reject_sign_in
from userflow.sessions.issue import TokenPair, TokenSubject, browser_sign_in
from userflow.signin import actions


@dataclass(frozen=True, slots=True)
class Verified:
    """A verified factor, with the tokens of the login that waited for it, if any."""

    user: Account
    method: str
    tokens: TokenPair | None


@dataclass(frozen=True, slots=True)
class SessionGrant:
    """The session that a sign-in opens."""

    subject: TokenSubject
    tenant: lookup.TenantContext | None
    amr: tuple[str, ...]
    user_agent: str

    def open(self, realm: Realm, user: Account, *, cleared: Counter | None = None) -> TokenPair:
        """Open the session of the locked user in the realm's transaction, and clear the counter of attempts `cleared`.

        Raises EmailNotVerified, WrongCredentials.
        """
        return issue.open_session(
            realm,
            user,
            self.subject,
            amr=self.amr,
            tenant=self.tenant,
            user_agent=self.user_agent,
            cleared=cleared,
        )


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
    *, realm: Realm, user: Account, login: Ticket | None, amr: tuple[str, ...], user_agent: str
) -> TokenPair | None:
    """Open the session of the sign-in whose ticket the transaction has consumed; return None without one.

    The proof of the new factor, `amr`, counts as the second step. Call it after `factors.finalize`, which ends the sessions
    from before a first factor. Raises NotSignedInByTicket (401), EmailNotVerified (403), TenantSuspended.
    """
    grant = second_step_grant(user=user, login=login, amr=amr, user_agent=user_agent)
    return grant.open(realm, user) if grant is not None else None


def second_step_grant(
    *, user: Account, login: Ticket | None, amr: tuple[str, ...], user_agent: str
) -> SessionGrant | None:
    """Return the session that a second step completes, or None without a login. Raises as `subject_and_tenant`.

    `amr` tells how the second step was done (RFC 8176 section 2); that of the first step is in the ticket.
    """
    if login is None:
        return None
    subject, tenant = subject_and_tenant(user, login.client_id)
    return SessionGrant(subject, tenant, (*login.amr, *amr), user_agent)


def subject_and_tenant(
    user: Account, client_id: UUID | None, *, caller: Caller | None = None
) -> tuple[TokenSubject, lookup.TenantContext | None]:
    """Return the subject of a session of the user, and the tenant.

    With `caller` the client authenticates now; the client of a login's ticket has authenticated before. A browser's session
    has no client. Raises NotSignedInByTicket (401, the client was deactivated since), ClientNotAuthenticated,
    DirectSignInDisabled (403), TenantSuspended.
    """
    if isinstance(user, EndUser):
        entered = current_tenant()
        if browser_sign_in.get() is not None:
            return actions.subject_of(user), entered
        client = active_client(client_id, entered.tenant_id)
        if client is None or client_id is None:
            raise NotSignedInByTicket
        signs_in_directly, bound_only, seconds, algorithm, type_, *digests = client
        if caller is not None and not is_authenticated(caller.client_secret, type_, *digests):
            reject_sign_in(entered.tenant_id, client_id)
        if not signs_in_directly:
            raise DirectSignInDisabled
        if bound_only:
            raise ClientNotAuthenticated(ClientNotAuthenticated.BOUND_ONLY)
        return (
            actions.subject_of(user, client_id, access_token_seconds=seconds, access_token_alg=algorithm),
            entered,
        )
    tenant_id = user.home_tenant_id
    tenant = lookup.find(tenant_id) if tenant_id is not None else None
    if tenant is not None:
        tenant.check(Purpose.READ)
    return actions.subject_of(user), tenant


# RFC 8176 and the IANA registry of authentication methods: `pop` is proof of possession of a key. With the user verified by
# the authenticator it is two factors in one step.
SECOND_STEP_AMR: Final = ("pop",)
ONLY_STEP_AMR: Final = ("pop", "mfa")


def only_step_grant(
    user: Account, *, client_id: UUID | None, caller: Caller, amr: tuple[str, ...] = ONLY_STEP_AMR
) -> SessionGrant:
    """Return the session that a passkey opens without a password.

    Raises PasskeyNotVerified without an active client, ClientNotAuthenticated (a confidential client without its secret),
    TenantSuspended.
    """
    set_actor(user.principal_kind, str(user.pk))
    try:
        subject, tenant = subject_and_tenant(user, client_id, caller=caller)
    except NotSignedInByTicket as deactivated:
        raise PasskeyNotVerified from deactivated
    return SessionGrant(subject, tenant, amr, caller.user_agent)


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
    if user is None:
        realm.record(action, outcome=outcome, details={"kind": kind, **details})
    else:
        realm.record_about(user, action, {"kind": kind, **details}, outcome=outcome)

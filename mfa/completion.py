"""Complete a sign-in with a second step: the ticket of the login and a verified factor become tokens."""

from dataclasses import dataclass
from uuid import UUID

from mfa.caller import Caller
from mfa.users import active_client
from tenants import lookup
from tenants.context import current_tenant
from tenants.states import Purpose
from userflow.accounts.models import Account, EndUser
from userflow.accounts.realms import Realm
from userflow.accounts.session_models import Ticket
from userflow.credentials import tickets
from userflow.credentials.attempts import Counter
from userflow.errors import NotSignedInByTicket
from userflow.sessions.client_authentication import is_authenticated, reject_sign_in
from userflow.sessions.issue import TokenPair, TokenSubject, browser_sign_in
from userflow.signin import actions


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
        return actions.complete_sign_in(
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
    has no client. Raises NotSignedInByTicket (401, the client was deactivated since), ClientNotAuthenticated, TenantSuspended.
    """
    if isinstance(user, EndUser):
        entered = current_tenant()
        if browser_sign_in.get() is not None:
            return actions.subject_of(user), entered
        client = active_client(client_id, entered.tenant_id)
        if client is None or client_id is None:
            raise NotSignedInByTicket
        if caller is not None and not is_authenticated(caller.client_secret, *client):
            reject_sign_in(entered.tenant_id, client_id)
        return actions.subject_of(user, client_id), entered
    tenant_id = user.home_tenant_id
    tenant = lookup.find(tenant_id) if tenant_id is not None else None
    if tenant is not None:
        tenant.check(Purpose.READ)
    return actions.subject_of(user), tenant

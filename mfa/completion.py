"""The second step of a sign-in: the login's ticket and a verified factor become tokens."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from mfa.users import active_client
from mfa.verification import Earned
from tenants import lookup
from tenants.context import current_tenant
from tenants.states import Purpose
from userflow.accounts.realms import END_USERS, Realm
from userflow.accounts.session_models import UserTicket
from userflow.credentials import tickets
from userflow.errors import NotSignedInByTicket
from userflow.sessions.client_authentication import is_authenticated, reject_sign_in
from userflow.sessions.issue import TokenPair, TokenSubject
from userflow.signin import actions


@dataclass(frozen=True, slots=True)
class ClientProof:
    """How the client of a sign-in without a ticket authenticates: by its secret, or by none if it is public."""

    secret: str | None


def waiting_login(*, realm: Realm, mfa_token: str | None, user: Any) -> UserTicket | None:
    """The login that waits for this user's second step; None without a ticket.

    Raises NotSignedInByTicket (401) when the ticket is not good or is somebody else's.
    """
    if mfa_token is None:
        return None
    ticket = tickets.find_ticket(realm, mfa_token, tickets.SECOND_STEP)
    if user is None or ticket.user.pk != user.pk:
        raise NotSignedInByTicket
    return ticket


def consume_login(realm: Realm, login: UserTicket | None) -> None:
    """Use up the sign-in that the factor about to be stored completes; nothing without one.

    Call it in the transaction of the confirmation, after `factors.lock_and_check` and before `factors.finalize`, which
    ends the tickets of a user with a first factor. Of two completions at once one wins. Raises NotSignedInByTicket.
    """
    if login is not None:
        tickets.consume_ticket(realm, login)


def complete_by_enrollment(
    *, realm: Realm, user: Any, login: UserTicket | None, amr: tuple[str, ...], user_agent: str
) -> TokenPair | None:
    """Open the session of the sign-in that `consume_login` has used up; None without one.

    The new factor's own proof, `amr`, counts as the second step. Call it behind `factors.finalize`, which ends the sessions
    from before a first factor. Raises NotSignedInByTicket (401), EmailNotVerified (403), TenantSuspended.
    """
    return None if login is None else _open_session(realm, user, login, amr, user_agent)


def complete_second_step(
    *, realm: Realm, user: Any, ticket: UserTicket | None, amr: tuple[str, ...], user_agent: str = ""
) -> TokenPair | None:
    """Spend the ticket and open the session; without a ticket nothing happens, a success is then a verification only.

    `amr` is how the second step was done (RFC 8176 section 2); the first step's comes from the ticket. Call it in
    `realm.atomic()` together with the spending of the code, so that a code is not lost on a ticket that is gone. Of two
    uses at once one wins. Raises NotSignedInByTicket (401), TenantSuspended.
    """
    if ticket is None:
        return None
    tickets.consume_ticket(realm, ticket)
    return _open_session(realm, user, ticket, amr, user_agent)


def _open_session(realm: Realm, user: Any, ticket: UserTicket, amr: tuple[str, ...], user_agent: str) -> TokenPair:
    subject, tenant = subject_and_tenant(realm, user, ticket.client_id)
    return actions.complete_sign_in(realm, user, subject, amr=(*ticket.amr, *amr), tenant=tenant, user_agent=user_agent)


def second_step(
    *, realm: Realm, user: Any, ticket: UserTicket | None, amr: tuple[str, ...], user_agent: str
) -> Earned | None:
    """What a right second step earns, for `verification.spend`; None without a ticket. Rejects as `subject_and_tenant`."""
    if ticket is None:
        return None
    subject, tenant = subject_and_tenant(realm, user, ticket.client_id)
    return Earned(subject, tenant, (*ticket.amr, *amr), user_agent, ticket)


def subject_and_tenant(
    realm: Realm, user: Any, client_id: UUID | None, *, client_proof: ClientProof | None = None
) -> tuple[TokenSubject, lookup.TenantContext | None]:
    """Whom a session of the user speaks for, and the tenant's context.

    With `client_proof` the client authenticates now; a login's ticket was given to a client that had authenticated. Raises
    NotSignedInByTicket (401, the client was switched off between the two steps), ClientNotAuthenticated, TenantSuspended.
    """
    if realm is END_USERS:
        entered = current_tenant()
        client = active_client(client_id, entered.tenant_id)
        if client is None or client_id is None:
            raise NotSignedInByTicket
        if client_proof is not None and not is_authenticated(client_proof.secret, *client):
            reject_sign_in(entered.tenant_id, client_id)
        return actions.end_user_subject(user, entered.tenant_id, client_id), entered
    tenant = lookup.find(user.tenant_id) if user.tenant_id else None
    if tenant is not None:
        tenant.check(Purpose.READ)
    return actions.admin_subject(user), tenant

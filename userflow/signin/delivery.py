"""What a completed sign-in hands out: tokens to an application, a cookie to a browser, a session to the console."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from tenants.entering.lookup import TenantContext
from userflow.accounts.models import Account, EndUser
from userflow.errors import ClientNotAuthenticated, NotSignedInByTicket
from userflow.sessions.client_authentication import StoredClient, find_client, reject_sign_in
from userflow.sessions.issue import TokenSubject
from userflow.sessions.signing import signer


@dataclass(frozen=True, slots=True)
class Delivery(ABC):
    """What the completed sign-in of a request hands out; `user_agent` is for the list of sessions."""

    issues_tokens: ClassVar[bool] = False
    sets_cookie: ClassVar[bool] = False
    # A further audit event about the session.
    audit_action: ClassVar[str] = ""

    user_agent: str = ""

    @abstractmethod
    def subject(
        self, user: Account, client_id: UUID | None, tenant: TenantContext | None, *, authenticates: bool
    ) -> TokenSubject:
        """Return the subject of the session, before anything is stored. An end user's tenant is entered.

        `authenticates` is for a sign-in that begins and ends with this request: a client authenticates in it. That of a
        login's ticket has authenticated before. Raises what the delivery's own kind of client needs.
        """


@dataclass(frozen=True, slots=True)
class ApplicationTokens(Delivery):
    """Tokens: of an admin user, or of an end user at a first-party client with `direct_sign_in`."""

    issues_tokens = True

    # What a confidential client has sent.
    client_secret: str | None = None
    # A client that was read, and has authenticated, before the user's proof was compared.
    client: StoredClient | None = None

    def subject(
        self, user: Account, client_id: UUID | None, tenant: TenantContext | None, *, authenticates: bool
    ) -> TokenSubject:
        """Return the subject of the session at the client.

        Raises NotSignedInByTicket (401, no active client of the tenant), ClientNotAuthenticated (401),
        DirectSignInDisabled (403), SigningKeyNotPublished.
        """
        if not isinstance(user, EndUser) or tenant is None:
            return _subject_of(user)
        client = self.client or (find_client(client_id) if client_id is not None else None)
        if client is None or not client.active or client.tenant.tenant_id != tenant.tenant_id:
            raise NotSignedInByTicket
        if authenticates and client is not self.client and not client.accepts(self.client_secret):
            reject_sign_in(tenant, client.id)
        client.check_direct_sign_in()
        if client.gets_bound_tokens_only:
            raise ClientNotAuthenticated(ClientNotAuthenticated.BOUND_ONLY)
        # Before a session is stored: the key may be too new to sign.
        signer(tenant.tenant_id, client.access_token_signed_response_alg)
        return TokenSubject(
            user.principal_kind,
            user.pk,
            user.home_tenant_id,
            client.id,
            access_token_seconds=client.access_token_seconds,
            access_token_alg=client.access_token_signed_response_alg,
        )


@dataclass(frozen=True, slots=True)
class BrowserCookie(Delivery):
    """A session of the browser at the tenant's hosted pages, for which applications ask. It has no client and no tokens."""

    sets_cookie = True

    # The cookie of a browser in which the user may skip the second step (`signin.remembered_browsers`).
    remembered: str | None = None

    def subject(
        self, user: Account, client_id: UUID | None, tenant: TenantContext | None, *, authenticates: bool
    ) -> TokenSubject:
        """Return the subject of an end user's session, which has no client."""
        if not isinstance(user, EndUser):
            raise NotSignedInByTicket
        return _subject_of(user)


@dataclass(frozen=True, slots=True)
class ConsoleSession(Delivery):
    """A session of the operators' console, which keeps its id on the server: no token can be used for it."""

    audit_action = "console.signed_in"

    def subject(
        self, user: Account, client_id: UUID | None, tenant: TenantContext | None, *, authenticates: bool
    ) -> TokenSubject:
        """Return the subject of an admin user's session."""
        if isinstance(user, EndUser):
            raise NotSignedInByTicket
        return _subject_of(user)


def _subject_of(user: Account) -> TokenSubject:
    return TokenSubject(user.principal_kind, user.pk, user.home_tenant_id, None)

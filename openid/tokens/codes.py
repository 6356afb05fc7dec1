"""Exchange authorization codes for tokens (RFC 6749 section 4.1.3, OpenID Connect Core section 3.1.3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from identity_platform.api.errors import OAuthError
from identity_platform.audit.origin import set_actor
from identity_platform.audit.writer import record_for_tenant
from identity_platform.crypto import hash_token
from openid.authorization.queries import use_code
from openid.models import AuthorizationCode
from openid.server import run_code_grant
from openid.tokens.issuing import Granted, open_application, token_response
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.entering.lookup import TenantContext
from tenants.states import Purpose
from userflow.accounts import principals
from userflow.accounts.realms import END_USERS
from userflow.oauth_errors import InvalidGrant
from userflow.sessions.client_authentication import KnownClient
from userflow.sessions.ending import end_sessions
from userflow.sessions.signing import complete_key_set


def exchange_code(
    *,
    tenant: TenantContext,
    client: KnownClient,
    parameters: Mapping[str, str],
    resources: Sequence[str],
    binding: str = "",
) -> dict[str, object]:
    """Return the response with the tokens of an authorization code.

    The code is used up by the first try of its client, right or wrong. A later one ends what was issued for it. The tokens
    are bound to `binding` (`sender_constraint.presented_binding`). Raises
    InvalidGrant, InvalidRequest, InvalidTarget, UnauthorizedClient, TenantSuspended, TenantBusy.
    """
    with in_tenant(tenant.tenant_id, Purpose.SIGN_IN):
        exchange = _Exchange(tenant, client, resources, binding)
        # A key set that is read within the transaction is not cached.
        complete_key_set(tenant.tenant_id)
        with tenant_atomic():
            result = run_code_grant(client, dict(parameters), exchange)
            if isinstance(result, OAuthError):
                exchange.give_up()
        # After the commit: that the code is used, or what its reuse has ended, stays.
        if isinstance(result, OAuthError):
            raise result
        return result


@dataclass
class _Exchange:
    """What Authlib calls to use a code and to issue its tokens."""

    tenant: TenantContext
    client: KnownClient
    resources: Sequence[str]
    binding: str
    session_id: UUID = field(default_factory=uuid4)
    used: AuthorizationCode | None = None

    def give_up(self) -> None:
        """Open no session after all: a code that was used up stays used, without one."""
        if self.used is not None:
            AuthorizationCode.objects.filter(pk=self.used.pk).update(opened_id=None)

    def use_code(self, code: str) -> AuthorizationCode | None:
        """Return the code if this client may use it now and it was not used before."""
        digest = hash_token(code)
        self.used = use_code(digest, self.client.id, opened_id=self.session_id)
        if self.used is None:
            client_codes = AuthorizationCode.objects.filter(digest=digest, client_id=self.client.id)
            self._end_what_was_issued(client_codes.exclude(used_at=None).first())
        return self.used

    def _end_what_was_issued(self, reused: AuthorizationCode | None) -> None:
        """End the session that a used code has opened (RFC 6749 section 4.1.2): one of its two holders has stolen it."""
        if reused is None:
            return
        set_actor(principals.CLIENT, str(self.client.id), self.client.id)
        if reused.opened_id is not None:
            end_sessions(END_USERS, user_id=reused.user_id, session_id=reused.opened_id, reason="code_reused")
        record_for_tenant(
            "authorization_code.reused",
            target=("session", reused.opened_id or ""),
            outcome="refused",
            details={"client_id": str(self.client.id), "user_id": str(reused.user_id)},
        )

    def issue_tokens(self, code: AuthorizationCode) -> dict[str, object]:
        """Open the session of the application and return its tokens. Raises InvalidGrant, InvalidTarget."""
        if code.dpop_jkt not in ("", self.binding):
            raise InvalidGrant("The code is bound to a key. Send a DPoP proof by that key.")
        granted = Granted(
            session=code.session,
            scopes=tuple(code.scopes),
            audiences=tuple(code.audiences),
            id_token_claims=tuple(code.id_token_claims),
            userinfo_claims=tuple(code.userinfo_claims),
            nonce=code.nonce,
        )
        opened = open_application(
            granted,
            client=self.client,
            resources=self.resources,
            binding=self.binding,
            session_id=self.session_id,
        )
        return token_response(granted, opened, tenant=self.tenant, client=self.client)

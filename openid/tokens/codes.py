"""Exchange authorization codes for tokens (RFC 6749 section 4.1.3, OpenID Connect Core section 3.1.3)."""

from collections.abc import Mapping, Sequence

from django.utils.timezone import now

from identity_platform.api.errors import OAuthError
from identity_platform.audit.origin import set_actor
from identity_platform.audit.writer import record_for_tenant
from identity_platform.crypto import hash_token
from openid.authorization.consents import covers
from openid.authorization.parameters import OFFLINE_ACCESS, OPENID, scopes_to_consent
from openid.claims import claims_about
from openid.clients import may_use
from openid.models import AuthorizationCode, Consent
from openid.server import run_code_grant
from tenants.context import in_tenant, tenant_atomic
from tenants.lookup import TenantContext
from tenants.states import Purpose
from userflow.accounts import principals
from userflow.accounts.grant_types import REFRESH_TOKEN
from userflow.accounts.models import Client
from userflow.accounts.realms import END_USERS
from userflow.errors import InvalidGrant, InvalidTarget
from userflow.sessions import issue
from userflow.sessions.browser import open_child_session
from userflow.sessions.ending import end_sessions


def exchange_code(
    *,
    tenant: TenantContext,
    client: Client,
    parameters: Mapping[str, str],
    resources: Sequence[str],
    dpop_jkt: str = "",
) -> dict[str, object]:
    """Return the response with the tokens of an authorization code.

    The code is used up by the first try of its client, right or wrong. A later one ends what was issued for it. With the
    thumbprint `dpop_jkt` of a proof the tokens are bound to its key (RFC 9449 section 5). Raises
    InvalidGrant, InvalidRequest, InvalidTarget, UnauthorizedClient, TenantSuspended, TenantBusy.
    """
    with in_tenant(tenant.tenant_id, Purpose.SIGN_IN):
        with tenant_atomic():
            result = run_code_grant(client, dict(parameters), _Exchange(tenant, client, resources, dpop_jkt))
        # After the commit: that the code is used, or what its reuse has ended, stays.
        if isinstance(result, OAuthError):
            raise result
        return result


class _Exchange:
    """What Authlib calls to use a code and to issue its tokens."""

    def __init__(self, tenant: TenantContext, client: Client, resources: Sequence[str], dpop_jkt: str) -> None:
        self._tenant = tenant
        self._client = client
        self._resources = resources
        self._dpop_jkt = dpop_jkt

    def use_code(self, code: str) -> AuthorizationCode | None:
        """Return the code if this client may use it now and it was not used before."""
        digest = hash_token(code)
        own = AuthorizationCode.objects.filter(digest=digest, client_id=self._client.pk)
        if own.filter(used_at=None, expires_at__gt=now()).update(used_at=now()):
            return own.select_related("session", "user").get()
        self._end_what_was_issued(own.exclude(used_at=None).first())
        return None

    def _end_what_was_issued(self, reused: AuthorizationCode | None) -> None:
        """End the session that a used code has opened (RFC 6749 section 4.1.2): one of its two holders has stolen it."""
        if reused is None:
            return
        set_actor(principals.CLIENT, str(self._client.pk), self._client.pk)
        if reused.opened_id is not None:
            end_sessions(END_USERS, user_id=reused.user_id, session_id=reused.opened_id, reason="code_reused")
        record_for_tenant(
            "authorization_code.reused",
            target=("session", reused.opened_id or ""),
            outcome="refused",
            details={"client_id": str(self._client.pk), "user_id": str(reused.user_id)},
        )

    def issue_tokens(self, code: AuthorizationCode) -> dict[str, object]:
        """Open the session of the application and return its tokens. Raises InvalidGrant, InvalidTarget."""
        audiences = tuple(code.audiences)
        if not set(self._resources) <= set(audiences):
            raise InvalidTarget
        if code.dpop_jkt not in ("", self._dpop_jkt):
            raise InvalidGrant("The code is bound to a key. Send a DPoP proof by that key.")
        if not self._client.first_party and not _is_consented(code):
            raise InvalidGrant("The user has withdrawn the consent.")
        set_actor(principals.END_USER, str(code.user_id), self._client.pk)
        opened = open_child_session(
            code.session,
            client_id=self._client.pk,
            scopes=tuple(code.scopes),
            audiences=audiences,
            userinfo_claims=tuple(code.userinfo_claims),
            dpop_jkt=self._dpop_jkt,
            offline=self._is_offline(code),
        )
        AuthorizationCode.objects.filter(pk=code.pk).update(opened_id=opened.session.pk)
        if self._resources:
            # Not saved: a later refresh may ask for all audiences again (RFC 8707 section 2.2).
            opened.session.audiences = list(self._resources)
        access, seconds = issue.application_access_token(
            opened.session,
            opened.rights,
            tenant=self._tenant,
            first_party=self._client.first_party,
            seconds=self._client.access_token_seconds,
        )
        response: dict[str, object] = {
            "access_token": access,
            "token_type": "DPoP" if self._dpop_jkt else "Bearer",
            "expires_in": seconds,
            "scope": " ".join(code.scopes),
        }
        if opened.refresh_token:
            response["refresh_token"] = opened.refresh_token
        if OPENID in code.scopes:
            response["id_token"] = issue.id_token(
                opened.session,
                tenant=self._tenant,
                nonce=code.nonce,
                access_token=access,
                algorithm=self._client.id_token_signed_response_alg,
                claims=claims_about(code.user, opened.rights, scopes=code.scopes, names=code.id_token_claims),
            )
        return response

    def _is_offline(self, code: AuthorizationCode) -> bool:
        if not may_use(self._client, REFRESH_TOKEN):
            return False
        return self._client.first_party or OFFLINE_ACCESS in code.scopes


def _is_consented(code: AuthorizationCode) -> bool:
    """Return whether the consent still covers the code. Its row stays locked, so that it ends what is opened now."""
    consent = Consent.objects.filter(user_id=code.user_id, client_id=code.client_id)
    scopes = scopes_to_consent(code.scopes, (*code.id_token_claims, *code.userinfo_claims))
    return consent.select_for_update(no_key=True).first() is not None and covers(
        user_id=code.user_id, client_id=code.client_id, scopes=scopes, audiences=code.audiences
    )

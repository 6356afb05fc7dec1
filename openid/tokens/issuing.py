"""The tokens of an application that its user has let in, whichever way: by a code or by a device code."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from identity_platform.audit.origin import set_actor
from openid.authorization.parameters import OFFLINE_ACCESS, OPENID, mapped_to_consent, scopes_to_consent
from openid.authorization.queries import covers
from openid.claims import claims_about
from tenants.entering.context import current_tenant
from tenants.entering.lookup import TenantContext
from userflow.accounts import principals
from userflow.accounts.grant_types import REFRESH_TOKEN, may_use
from userflow.accounts.session_models import EndUserSession
from userflow.oauth_errors import InvalidGrant, InvalidTarget
from userflow.sessions import id_tokens, issue
from userflow.sessions.browser import ApplicationSession, Device, open_child_session
from userflow.sessions.client_authentication import KnownClient
from userflow.sessions.sender_constraint import token_type_of
from userflow.sessions.verify import audiences_still_allowed, scopes_still_allowed


@dataclass(frozen=True, slots=True)
class Granted:
    """What a user has let an application have."""

    # The browser's session of the user, which is loaded with it.
    session: EndUserSession
    scopes: tuple[str, ...]
    audiences: tuple[str, ...]
    id_token_claims: tuple[str, ...] = ()
    userinfo_claims: tuple[str, ...] = ()
    nonce: str = ""
    # The application is on another device than the browser.
    device: Device | None = None


def open_application(
    granted: Granted, *, client: KnownClient, resources: Sequence[str], binding: str, session_id: UUID | None = None
) -> ApplicationSession:
    """Open the session of the application, for the requested part of its audiences.

    It gets only those scopes and audiences that the client may still ask for. Raises InvalidGrant (the browser's session has
    ended, or the consent was withdrawn), InvalidTarget (also if no audience is left). Call it in a transaction inside the
    tenant.
    """
    granted = _narrowed(granted, client, current_tenant())
    if not set(resources) <= set(granted.audiences):
        raise InvalidTarget
    if not client.first_party and not _is_consented(granted, client):
        raise InvalidGrant("The user has withdrawn the consent.")
    set_actor(principals.END_USER, str(granted.session.user_id), client.id)
    opened = open_child_session(
        granted.session,
        client_id=client.id,
        scopes=granted.scopes,
        audiences=granted.audiences,
        id_token_claims=granted.id_token_claims,
        userinfo_claims=granted.userinfo_claims,
        binding=binding,
        offline=may_use(client, REFRESH_TOKEN) and (client.first_party or OFFLINE_ACCESS in granted.scopes),
        device=granted.device,
        backchannel_logout=bool(client.backchannel_logout_uri),
        session_id=session_id,
    )
    if resources:
        # Not saved: a later refresh may ask for all audiences again (RFC 8707 section 2.2).
        opened.session.audiences = list(resources)
    return opened


def token_response(
    granted: Granted, opened: ApplicationSession, *, tenant: TenantContext, client: KnownClient
) -> dict[str, object]:
    """Return the response of the token endpoint for a new session (RFC 6749 section 5.1)."""
    access, seconds = issue.application_access_token(
        opened.session,
        opened.rights,
        tenant=tenant,
        first_party=client.first_party,
        seconds=client.access_token_seconds,
        algorithm=client.access_token_signed_response_alg,
    )
    response: dict[str, object] = {
        "access_token": access,
        "token_type": token_type_of(opened.session.dpop_jkt),
        "expires_in": seconds,
    }
    if opened.session.scopes:
        response["scope"] = " ".join(opened.session.scopes)
    if opened.refresh_token:
        response["refresh_token"] = opened.refresh_token
    if OPENID in opened.session.scopes:
        response["id_token"] = id_tokens.id_token(
            id_tokens.claims_of_session(opened.session),
            tenant=tenant,
            nonce=granted.nonce,
            access_token=access,
            algorithm=client.id_token_signed_response_alg,
            claims=claims_about(
                granted.session.user, opened.rights, scopes=opened.session.scopes, names=granted.id_token_claims
            ),
        )
    return response


def _narrowed(granted: Granted, client: KnownClient, tenant: TenantContext) -> Granted:
    """Return the grant without what was taken from the client since. Raises InvalidTarget if no audience is left."""
    audiences = audiences_still_allowed(granted.audiences, client.audiences, tenant)
    if granted.audiences and not audiences:
        raise InvalidTarget
    return replace(granted, scopes=scopes_still_allowed(granted.scopes, client.scopes), audiences=audiences)


def _is_consented(granted: Granted, client: KnownClient) -> bool:
    """Return whether the consent still covers the grant. Its row stays locked, so that it ends what is opened now."""
    by_name = (*granted.id_token_claims, *granted.userinfo_claims)
    return covers(
        user_id=granted.session.user_id,
        client_id=client.id,
        scopes=scopes_to_consent(granted.scopes, by_name),
        audiences=granted.audiences,
        claims=mapped_to_consent(by_name),
        lock=True,
    )

"""Claims about the user of an access token (OpenID Connect Core section 5.3)."""

from uuid import UUID

from django.http import HttpRequest

from identity_platform.api.errors import AccessTokenInvalid, InsufficientScope
from identity_platform.audit.origin import set_actor
from openid.authorization.parameters import OPENID
from openid.claims import claims_about, names_for_token
from openid.tenant_of_request import is_address_of
from tenants.entering import lookup
from tenants.entering.context import in_tenant
from tenants.states import Purpose
from userflow.accounts import principals
from userflow.sessions.authentication import check_binding
from userflow.sessions.queries import Rights
from userflow.sessions.token_classes import InvalidToken, verified_claims
from userflow.sessions.verify import SessionInactive, session_of


def claims_of_token(request: HttpRequest, *, scheme: str, token: str) -> dict[str, object]:
    """Return the claims of the token's scopes and those that its application requested by name.

    The token may be for any audience. Raises AccessTokenInvalid (also for a token of another tenant, of a session without
    OpenID Connect, or below the policy in force), DpopRejected, InsufficientScope (without `openid`), TenantSuspended,
    TenantBusy.
    """
    try:
        claims = verified_claims(token)
        if claims["kind"] != principals.END_USER:
            raise AccessTokenInvalid
        check_binding(request, scheme, token, claims)
        principal, session = session_of(claims)
    except (InvalidToken, SessionInactive, ValueError) as problem:
        raise AccessTokenInvalid from problem
    if principal.grant is None or not principal.meets_policy():
        raise AccessTokenInvalid
    # It has just been read with the state of the session; its issuer is the token's.
    tenant = lookup.find(UUID(claims["tenant_id"] or ""))
    if not is_address_of(request, tenant):
        raise AccessTokenInvalid
    set_actor(principal.kind, str(principal.id), principal.client_id, actor_tenant_id=principal.tenant_id)
    if OPENID not in principal.grant.scopes:
        raise InsufficientScope("The access token lacks the scope openid.", scope=OPENID)
    rights = Rights(principal.roles, tuple(sorted(principal.permissions)), principal.groups)
    with in_tenant(tenant.tenant_id, Purpose.READ):
        scopes = principal.grant.scopes
        names = names_for_token(session.userinfo_claims, session_scopes=session.scopes, scopes=scopes)
        about = claims_about(session.user, rights, scopes=scopes, names=names)
    return {"sub": str(principal.id), **about}

"""Refresh tokens at a tenant's token endpoint (RFC 6749 section 6)."""

from collections.abc import Collection, Mapping
from typing import Any

from openid.authorization.parameters import OPENID
from openid.claims import claims_about, names_for_token
from tenants.entering.context import in_tenant
from tenants.entering.lookup import TenantContext
from tenants.states import Purpose
from userflow.oauth_errors import InvalidGrant, InvalidRequest
from userflow.sessions.client_authentication import KnownClient
from userflow.sessions.id_tokens import renewed_id_token
from userflow.sessions.issue import RefreshedUser
from userflow.sessions.refresh import refresh_session
from userflow.sessions.refresh_tokens import parse_refresh_token
from userflow.sessions.signing import signer
from userflow.sessions.token_classes import InvalidToken


def refresh(*, tenant: TenantContext, client: KnownClient, sent: Mapping[str, Any], binding: str) -> dict[str, object]:
    """Return the response with the successor of a refresh token that this tenant has issued to the client.

    With the scope `openid` an ID token comes with it, with the claims that the first one had, as far as `scope` covers them.

    Raises InvalidRequest, InvalidGrant (also for a token of another tenant), InvalidScope, InvalidTarget, TenantBusy,
    SigningKeyNotPublished.
    """
    if "refresh_token" not in sent:
        raise InvalidRequest("refresh_token is missing.")
    try:
        presented = parse_refresh_token(sent["refresh_token"])
    except InvalidToken as problem:
        raise InvalidGrant from problem
    if presented.tenant_id != tenant.tenant_id:
        raise InvalidGrant
    # Before the refresh token is used up: the key may be too new to sign.
    signer(tenant.tenant_id, client.id_token_signed_response_alg)
    pair = refresh_session(
        refresh_token=sent["refresh_token"],
        client=client,
        scopes=tuple(sent["scope"].split()) if "scope" in sent else None,
        audiences=tuple(sent.get("resource", ())) or None,
        binding=binding,
    )
    response: dict[str, object] = dict(pair.fields())
    scopes = (pair.scope or "").split(" ")
    if OPENID in scopes and pair.about is not None:
        response["id_token"] = renewed_id_token(
            pair.access_token,
            tenant=tenant,
            algorithm=client.id_token_signed_response_alg,
            claims=_claims(pair.about, scopes, tenant),
        )
    return response


def _claims(about: RefreshedUser, scopes: Collection[str], tenant: TenantContext) -> dict[str, object]:
    names = names_for_token(about.id_token_claims, session_scopes=about.scopes, scopes=scopes)
    with in_tenant(tenant.tenant_id, Purpose.SIGN_IN):
        return claims_about(about.user, about.rights, scopes=scopes, names=names)

"""Refresh tokens at a tenant's token endpoint (RFC 6749 section 6)."""

from collections.abc import Mapping
from typing import Any

from openid.authorization.parameters import OPENID
from tenants.lookup import TenantContext
from userflow.oauth_errors import InvalidGrant, InvalidRequest
from userflow.sessions.client_authentication import KnownClient
from userflow.sessions.id_tokens import renewed_id_token
from userflow.sessions.refresh import refresh_session
from userflow.sessions.refresh_tokens import parse_refresh_token
from userflow.sessions.signing import signer
from userflow.sessions.token_classes import InvalidToken


def refresh(*, tenant: TenantContext, client: KnownClient, sent: Mapping[str, Any], dpop_jkt: str) -> dict[str, object]:
    """Return the response with the successor of a refresh token that this tenant has issued to the client.

    With the scope `openid` an ID token comes with it.

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
        scopes=tuple(sent["scope"].split(" ")) if "scope" in sent else None,
        audiences=tuple(sent.get("resource", ())) or None,
        dpop_jkt=dpop_jkt,
    )
    response: dict[str, object] = dict(pair.fields())
    if OPENID in (pair.scope or "").split(" "):
        algorithm = client.id_token_signed_response_alg
        response["id_token"] = renewed_id_token(pair.access_token, tenant=tenant, algorithm=algorithm)
    return response

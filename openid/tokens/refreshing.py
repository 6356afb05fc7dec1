"""Refresh tokens at a tenant's token endpoint (RFC 6749 section 6)."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import jwt

from openid.authorization.parameters import OPENID
from openid.client_authentication import AuthenticatedClient
from tenants.lookup import TenantContext
from userflow.accounts.models import Client
from userflow.accounts.session_models import EndUserSession
from userflow.errors import InvalidGrant, InvalidRequest
from userflow.sessions import issue
from userflow.sessions.refresh import refresh_session
from userflow.sessions.refresh_tokens import parse_refresh_token
from userflow.sessions.token_classes import InvalidToken


def refresh(
    *, tenant: TenantContext, client: AuthenticatedClient, sent: Mapping[str, Any], dpop_jkt: str
) -> dict[str, object]:
    """Return the response with the successor of a refresh token that this tenant has issued to the client.

    With the scope `openid` an ID token comes with it.

    Raises InvalidRequest, InvalidGrant (also for a token of another tenant), InvalidScope, InvalidTarget, TenantBusy.
    """
    if "refresh_token" not in sent:
        raise InvalidRequest("refresh_token is missing.")
    try:
        presented = parse_refresh_token(sent["refresh_token"])
    except InvalidToken as problem:
        raise InvalidGrant from problem
    if presented.tenant_id != tenant.tenant_id:
        raise InvalidGrant
    pair = refresh_session(
        refresh_token=sent["refresh_token"],
        client=client.known,
        scopes=tuple(sent["scope"].split(" ")) if "scope" in sent else None,
        audiences=tuple(sent.get("resource", ())) or None,
        dpop_jkt=dpop_jkt,
    )
    response: dict[str, object] = dict(pair.fields())
    if OPENID in (pair.scope or "").split(" "):
        response["id_token"] = _id_token(pair.access_token, tenant=tenant, client=client.row)
    return response


def _id_token(access_token: str, *, tenant: TenantContext, client: Client) -> str:
    """Return an ID token of the sign-in that the access token just issued is of, without claims about the user.

    OpenID Connect Core section 12.2. The claims of the session are in the access token already.
    """
    claims = jwt.decode(access_token, options={"verify_signature": False})
    session = EndUserSession(
        id=UUID(claims["sid"]),
        user_id=UUID(claims["sub"]),
        client_id=client.pk,
        amr=claims["amr"],
        acr=claims["acr"],
        auth_time=datetime.fromtimestamp(claims["auth_time"], UTC),
    )
    algorithm = client.id_token_signed_response_alg
    return issue.id_token(session, tenant=tenant, access_token=access_token, algorithm=algorithm)

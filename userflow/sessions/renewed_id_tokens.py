"""ID tokens at a refresh (OpenID Connect Core section 12.2)."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tenants import lookup
from userflow.accounts.session_models import EndUserSession
from userflow.sessions.issue import id_token
from userflow.sessions.token_classes import read_unverified


def renewed_id_token(access: str, *, tenant: lookup.TenantContext, algorithm: str) -> str:
    """Return an ID token of the sign-in that an access token just issued is of.

    It has no nonce and no claims about the user. Those of the session are in the access token, which was just signed here.
    """
    claims: dict[str, Any] = read_unverified(access)[1]
    session = EndUserSession(
        id=UUID(claims["sid"]),
        user_id=UUID(claims["sub"]),
        client_id=UUID(claims["client_id"]),
        amr=claims["amr"],
        acr=claims["acr"],
        auth_time=datetime.fromtimestamp(claims["auth_time"], UTC),
    )
    return id_token(session, tenant=tenant, access_token=access, algorithm=algorithm)

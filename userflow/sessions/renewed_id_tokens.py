"""ID tokens at a refresh (OpenID Connect Core section 12.2)."""

from typing import Any

from tenants import lookup
from userflow.sessions.issue import SignIn, id_token
from userflow.sessions.token_classes import read_unverified


def renewed_id_token(access: str, *, tenant: lookup.TenantContext, algorithm: str) -> str:
    """Return an ID token of the sign-in that an access token just issued is of.

    It has no nonce and no claims about the user. Those of the session are in the access token, which was just signed here.
    """
    claims: dict[str, Any] = read_unverified(access)[1]
    sign_in = SignIn(**{name: claims[name] for name in SignIn._fields})
    return id_token(sign_in, tenant=tenant, access_token=access, algorithm=algorithm)

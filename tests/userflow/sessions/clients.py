"""Clients that prove who they are at the OAuth endpoints."""

import base64
from typing import Any
from urllib.parse import quote_plus, urlencode

from tests.world import Api, TestTenant

FORM = "application/x-www-form-urlencoded"


def make_client(tenant: TestTenant, **members: Any) -> dict[str, Any]:
    """A confidential client of the tenant, with its secret."""
    body = {"name": "Backend", "type": "confidential", "scopes": ["services:read", "services:credentials"], **members}
    response = tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", body)
    assert response.status_code == 201, response.content
    return dict(response.json())


def basic(client: dict[str, Any], secret: str | None = None) -> dict[str, str]:
    """The client's proof as a header (RFC 6749 section 2.3.1)."""
    pair = f"{quote_plus(client['client_id'])}:{quote_plus(secret or client['client_secret'])}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def form(**parameters: str) -> dict[str, Any]:
    """A body as the OAuth endpoints take it."""
    return {"raw": urlencode(parameters).encode(), "content_type": FORM}


def own_token(client: dict[str, Any]) -> str:
    """An access token that speaks for the client itself."""
    response = Api().post("/authmgr/token", **form(grant_type="client_credentials"), headers=basic(client))
    return str(response.json()["access_token"])

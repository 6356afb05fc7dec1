"""Clients with certificates, and what they send (RFC 8705)."""

from typing import Any

from tests.openid.certificates import SUBJECT, Authority, Certified
from tests.openid.relying_party import CALLBACK, Application
from tests.userflow.clients.keys import key_set
from tests.userflow.clients.test_clients import create
from tests.userflow.sessions.clients import form
from tests.world import Api, TestTenant

SELF_SIGNED, BY_AUTHORITY = "self_signed_tls_client_auth", "tls_client_auth"
BOUND = "tls_client_certificate_bound_access_tokens"


def sent_form(address: str, headers: dict[str, str] | None = None, **parameters: Any) -> Any:
    """Post a form to an endpoint."""
    return Api().post(address, **form(**parameters), headers=headers)


def client_of(tenant: TestTenant, **fields: Any) -> Application:
    body = {"type": "confidential", "redirect_uris": [CALLBACK], "first_party": True, "scopes": ["services:read"]}
    made = create(tenant, **{**body, **fields})
    assert made.status_code == 201, made.content
    assert "client_secret" not in made.json() or "token_endpoint_auth_method" not in fields
    return Application(tenant, made.json())


def by_authority(authority: Authority, **subject: str) -> dict[str, Any]:
    subject = subject or {"tls_client_auth_subject_dn": SUBJECT}
    return {"token_endpoint_auth_method": BY_AUTHORITY, "tls_client_auth_authorities": authority.pem, **subject}


def by_own(*certified: Certified) -> dict[str, Any]:
    return {"token_endpoint_auth_method": SELF_SIGNED, "jwks": key_set(*(each.jwk for each in certified))}


def call(app: Application, endpoint: str, certified: Certified | None = None, **sent: Any) -> Any:
    """Call an endpoint of the tenant as the client, over mutual TLS with this certificate."""
    headers = {**(certified.headers if certified else {}), **sent.pop("headers", {})}
    return sent_form(f"{app.issuer}/{endpoint}", headers, **{"client_id": app.client["client_id"], **sent})


def own_token(app: Application, certified: Certified | None = None, **sent: Any) -> Any:
    return call(app, "token", certified, grant_type="client_credentials", **sent)

"""The metadata of an issuer (RFC 8414 section 2)."""

from django.conf import settings

from userflow.accounts.permissions_catalogue import CLIENT_SCOPES
from userflow.sessions.client_authentication import NONE, supported_methods
from userflow.sessions.client_keys import SIGNING_ALGORITHMS


def metadata_of(issuer: str, *, jwks_uri: str) -> dict[str, object]:
    """Return the document that client libraries read.

    Addresses come from BASE_URL, never from the Host header: a forged one must not send clients' secrets elsewhere.
    """
    confidential = list(supported_methods())
    algorithms = list(SIGNING_ALGORITHMS)
    return {
        "issuer": issuer,
        "token_endpoint": f"{settings.BASE_URL}/authmgr/token",
        "revocation_endpoint": f"{settings.BASE_URL}/authmgr/token/revoke",
        "introspection_endpoint": f"{settings.BASE_URL}/authmgr/token/introspect",
        "jwks_uri": jwks_uri,
        "service_documentation": f"{settings.BASE_URL}/docs/",
        # There is no authorization endpoint, but the field is required and must not be empty.
        "response_types_supported": ["none"],
        "grant_types_supported": ["client_credentials", "refresh_token"],
        "scopes_supported": list(CLIENT_SCOPES),
        "token_endpoint_auth_methods_supported": [*confidential, NONE],
        "revocation_endpoint_auth_methods_supported": [*confidential, NONE],
        "introspection_endpoint_auth_methods_supported": confidential,
        "token_endpoint_auth_signing_alg_values_supported": algorithms,
        "revocation_endpoint_auth_signing_alg_values_supported": algorithms,
        "introspection_endpoint_auth_signing_alg_values_supported": algorithms,
    }

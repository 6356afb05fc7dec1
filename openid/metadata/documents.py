"""The metadata of a tenant's issuer: only what works is listed (OpenID Connect Discovery section 3, RFC 8414 section 2)."""

from functools import lru_cache
from typing import Final, NamedTuple

from django.conf import settings

from identity_platform.api.json_documents import JsonDocument
from openid.authorization.parameters import PROMPTS, SCOPES
from openid.authorization.responses import RESPONSE_MODES
from openid.claims import claims_of
from tenants.addresses.issuers import issuer_of
from tenants.entering.lookup import TenantContext
from userflow.accounts.grant_types import GRANT_TYPES
from userflow.accounts.permissions_catalogue import CLIENT_SCOPES
from userflow.accounts.session_policy import AAL1, AAL2
from userflow.branding.texts import LANGUAGES
from userflow.sessions.client_authentication import NONE, supported_methods
from userflow.sessions.client_certificates import takes_certificates
from userflow.sessions.client_keys import SIGNING_ALGORITHMS as ASSERTION_ALGORITHMS
from userflow.sessions.dpop import ALGORITHMS as DPOP_ALGORITHMS
from userflow.sessions.signing import ALGORITHMS

# Endpoints that clients and not browsers call.
_ALIASES: Final = {
    "token_endpoint": "token",
    "pushed_authorization_request_endpoint": "par",
    "device_authorization_endpoint": "device_authorization",
    "userinfo_endpoint": "userinfo",
    "revocation_endpoint": "revoke",
    "introspection_endpoint": "introspect",
}
# Claims that every ID token has.
_ALWAYS: Final = ("sub", "auth_time", "nonce", "acr", "amr", "azp", "at_hash", "sid")
# Documents in memory, of 3 KB each.
_MOST_DOCUMENTS: Final = 1024


class _Values(NamedTuple):
    """All that a document depends on, beside the release: it is rendered again as soon as one of them is another."""

    issuer: str
    root: str
    documentation: str
    claims: tuple[str, ...]
    confidential_methods: tuple[str, ...]
    takes_certificates: bool
    # Where clients with certificates call the endpoints, empty without another address for them.
    mutual_tls_root: str


def provider_metadata(tenant: TenantContext) -> JsonDocument:
    """Return the document that client libraries read, from memory if one of the same values was rendered.

    Addresses come from BASE_URL, never from the Host header: a forged one must not send clients' secrets elsewhere.
    """
    # The second address is one of the platform, where tenants with a sign-in domain are not.
    has_second_root = takes_certificates() and settings.MTLS_BASE_URL and not tenant.sign_in_domain
    return _render(
        _Values(
            issuer=issuer_of(tenant),
            root=tenant.root,
            documentation=f"{settings.BASE_URL}/docs/",
            claims=claims_of(tenant),
            confidential_methods=supported_methods(),
            takes_certificates=takes_certificates(),
            mutual_tls_root=f"{settings.MTLS_BASE_URL}{tenant.root_path}" if has_second_root else "",
        )
    )


@lru_cache(maxsize=_MOST_DOCUMENTS)
def _render(values: _Values) -> JsonDocument:
    return JsonDocument.of(_document(values))


def _document(values: _Values) -> dict[str, object]:
    root, confidential = values.root, list(values.confidential_methods)
    return {
        "issuer": values.issuer,
        "authorization_endpoint": f"{root}/authorize",
        "token_endpoint": f"{root}/token",
        "pushed_authorization_request_endpoint": f"{root}/par",
        "device_authorization_endpoint": f"{root}/device_authorization",
        "userinfo_endpoint": f"{root}/userinfo",
        "end_session_endpoint": f"{root}/logout",
        "backchannel_logout_supported": True,
        "backchannel_logout_session_supported": True,
        "revocation_endpoint": f"{root}/revoke",
        "introspection_endpoint": f"{root}/introspect",
        "jwks_uri": f"{root}/jwks",
        "service_documentation": values.documentation,
        "response_types_supported": ["code"],
        "response_modes_supported": list(RESPONSE_MODES),
        "grant_types_supported": list(GRANT_TYPES),
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": list(ALGORITHMS),
        "scopes_supported": [*SCOPES, *CLIENT_SCOPES],
        "claims_supported": [*_ALWAYS, *values.claims],
        "acr_values_supported": [AAL1, AAL2],
        "prompt_values_supported": list(PROMPTS),
        "ui_locales_supported": list(LANGUAGES),
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": [*confidential, NONE],
        "token_endpoint_auth_signing_alg_values_supported": list(ASSERTION_ALGORITHMS),
        "dpop_signing_alg_values_supported": list(DPOP_ALGORITHMS),
        "revocation_endpoint_auth_methods_supported": [*confidential, NONE],
        "revocation_endpoint_auth_signing_alg_values_supported": list(ASSERTION_ALGORITHMS),
        "introspection_endpoint_auth_methods_supported": confidential,
        "introspection_endpoint_auth_signing_alg_values_supported": list(ASSERTION_ALGORITHMS),
        "authorization_response_iss_parameter_supported": True,
        "claims_parameter_supported": True,
        "authorization_signing_alg_values_supported": list(ALGORITHMS),
        "request_parameter_supported": True,
        "request_object_signing_alg_values_supported": list(ASSERTION_ALGORITHMS),
        "request_uri_parameter_supported": False,
        "require_pushed_authorization_requests": False,
        **_mutual_tls(values),
    }


def _mutual_tls(values: _Values) -> dict[str, object]:
    """Return what clients with certificates need to know (RFC 8705 sections 3.3 and 5), nothing if no proxy passes them on."""
    if not values.takes_certificates:
        return {}
    bound: dict[str, object] = {"tls_client_certificate_bound_access_tokens": True}
    if not values.mutual_tls_root:
        return bound
    aliases = {name: f"{values.mutual_tls_root}/{path}" for name, path in _ALIASES.items()}
    return {**bound, "mtls_endpoint_aliases": aliases}

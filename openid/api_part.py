"""What the core does not know of this app: its part of the API document, and rules of its paths."""

import re
from collections.abc import Mapping
from typing import Any, Final

from identity_platform.api.app_parts import ApiPart
from identity_platform.api.error_formats import OAUTH
from identity_platform.api.tags import Tag
from userflow.api_part.example_bodies import CALLBACK, CLIENT
from userflow.api_part.example_values import ACCESS_TOKEN, CLIENT_ID, ISSUER, REFRESH_TOKEN

AUTHORIZATION_CODE: Final = "ac_9fK2mQ7xV4tB8nL3"
VERIFIER: Final = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"

TAGS: Final[Mapping[str, Tag]] = {
    "OpenID Connect": Tag(
        "Applications", 40, "Below `/t/{slug}`: each tenant is an issuer of its own, with keys in its own database."
    ),
}
TAG_OF_PREFIX: Final[Mapping[str, str]] = {
    "/.well-known/oauth-authorization-server/t/": "OpenID Connect",
    "/t/": "OpenID Connect",
    "/t/domain-check": "Domains",
}
EXAMPLE_VALUES: Final[Mapping[str, Any]] = {
    # Users and sign-in
    "Userinfo.updated_at": 1772443800,
    # Tokens
    "id_token": "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIwZTlhIn0.c2ln",
    "request_uri": "urn:ietf:params:oauth:request_uri:6Zk2Xv9Qm4Tb8Ln3",
    "PushedAuthorization.expires_in": 90,
    "device_code": "dc_8Tn4Qx7Zb2Vk5Mw9",
    "user_code": "WDJB-MJHT",
    "verification_uri": f"{ISSUER}/device",
    "verification_uri_complete": f"{ISSUER}/device?user_code=WDJB-MJHT",
    "interval": 5,
    # Clients
    "mtls_endpoint_aliases": {"token_endpoint": "https://mtls.id.example.com/t/acme/token"},
    # Tenants
    "DomainCheck.status": "known",
    # Metadata of issuers
    "authorization_endpoint": f"{ISSUER}/authorize",
    "pushed_authorization_request_endpoint": f"{ISSUER}/par",
    "device_authorization_endpoint": f"{ISSUER}/device_authorization",
    "userinfo_endpoint": f"{ISSUER}/userinfo",
    "end_session_endpoint": f"{ISSUER}/logout",
    "id_token_signing_alg_values_supported": ["RS256", "ES256"],
    "dpop_signing_alg_values_supported": ["ES256"],
    "authorization_signing_alg_values_supported": ["RS256", "ES256"],
    "request_object_signing_alg_values_supported": ["ES256"],
    "ui_locales_supported": ["en", "de", "fr", "es"],
    "code_challenge_methods_supported": ["S256"],
    "claims_supported": ["sub", "name", "email"],
    "subject_types_supported": ["public"],
    "response_modes_supported": ["query", "form_post"],
    "acr_values_supported": ["aal1", "aal2"],
    "prompt_values_supported": ["none", "login"],
}
EXAMPLE_BODIES: Final[Mapping[str, Mapping[str, Any]]] = {
    # OpenID Connect
    "pushAuthorizationRequest": {
        **CLIENT,
        "response_type": "code",
        "redirect_uri": CALLBACK,
        "scope": "openid profile",
        "state": "Xq6Vb9Kx",
        "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
        "code_challenge_method": "S256",
    },
    "requestOpenidToken": {
        "grant_type": "authorization_code",
        "code": AUTHORIZATION_CODE,
        "redirect_uri": CALLBACK,
        "code_verifier": VERIFIER,
        **CLIENT,
    },
    "beginDeviceAuthorization": {"client_id": CLIENT_ID, "scope": "openid profile"},
    "introspectOpenidToken": {"token": ACCESS_TOKEN, **CLIENT},
    "revokeOpenidToken": {"token": REFRESH_TOKEN, **CLIENT},
    "getUserinfoByPost": {"access_token": ACCESS_TOKEN},
}
FIELD_DESCRIPTIONS: Final[Mapping[str, str]] = {
    # Users
    "phone_number_verified": "Whether the phone number is verified.",
    # Metadata of issuers (RFC 8414, OpenID Connect Discovery)
    "authorization_endpoint": "Address of the authorization endpoint.",
    "pushed_authorization_request_endpoint": "Address for pushed authorization requests.",
    "device_authorization_endpoint": "Address of the device authorization endpoint.",
    "userinfo_endpoint": "Address of the userinfo endpoint.",
    "end_session_endpoint": "Address of the logout endpoint.",
    "require_pushed_authorization_requests": "Whether every client must push authorization requests.",
}

API_PART: Final = ApiPart(
    # A tenant's OAuth endpoints, below its issuer: on a domain of its own, or below the path of its slug.
    error_formats={re.compile(r"(?:/t/[^/]+)?/(?:token|par|introspect|revoke|device_authorization)"): OAUTH},
    probes=frozenset({"/t/domain-check"}),
    tags=TAGS,
    tag_of_prefix=TAG_OF_PREFIX,
    example_values=EXAMPLE_VALUES,
    example_bodies=EXAMPLE_BODIES,
    field_descriptions=FIELD_DESCRIPTIONS,
)

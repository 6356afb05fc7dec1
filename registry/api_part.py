"""What the core does not know of this app: its part of the API document, and rules of its paths."""

import re
from collections.abc import Mapping
from typing import Any, Final

from identity_platform.api.app_parts import ApiPart
from identity_platform.api.tags import Tag
from registry.error_format import REGISTRY
from userflow.api_part.example_values import TENANT_ID, USER_ID

TAGS: Final[Mapping[str, Tag]] = {
    "Registry": Tag("Management", 80, "External services and their encrypted credentials."),
}
TAG_OF_PREFIX: Final[Mapping[str, str]] = {
    "/exsvc/": "Registry",
}
EXAMPLE_VALUES: Final[Mapping[str, Any]] = {
    # Errors
    "RegistryProblem.code": "VALIDATION_ERROR",
    "RegistryProblem.message": "Validation failed. See `details` for each field.",
    # Tokens
    "claims": {"sub": USER_ID, "typ": "access", "tenant_id": TENANT_ID},
    "header": {"alg": "ES256", "typ": "at+jwt", "kid": "2026-03"},
    # Registry
    "Service.name": "Payments",
    "Service.type": "payment",
    "Service.description": "Takes card payments.",
    "Service.metadata": {"region": "eu"},
    "service_name": "Payments",
    "service_type": "payment",
    "base_url": "https://payments.example.com/v2",
    "api_version": "2.1",
    "ServiceCredential.name": "Production key",
    "ServiceSecret.name": "Production key",
    "ServiceCredentialWithSecret.name": "Production key",
    "ServiceSecret.secret": "pk_5Rt8Zn2Xq6Vb",
    "ServiceCredentialWithSecret.secret": "pk_5Rt8Zn2Xq6Vb",
    "unreadable": [],
}
EXAMPLE_BODIES: Final[Mapping[str, Mapping[str, Any]]] = {
    # Registry
    "createService": {"name": "Payments", "type": "payment", "metadata": {"region": "eu"}},
    "updateService": {"api_version": "2.1"},
    "createServiceCredential": {
        "name": "Production key",
        "type": "api_key",
        "secret": "pk_5Rt8Zn2Xq6Vb",
        "expires_at": "2030-01-31T00:00:00Z",
    },
    "updateServiceCredential": {"secret": "pk_9Kx4Wd7Jm3Tc"},
}
FIELD_DESCRIPTIONS: Final[Mapping[str, str]] = {
    # Records
    "credential_id": "Id of the credential.",
    "service_id": "Id of the service.",
    "last_read_at": "When the secret was last read; null before the first time.",
    # Lists
    "services": "Services of the page, newest first.",
    # Sign-in and tokens
    "claims": "Claims of the token.",
    "header": "JOSE header of the token.",
    # Registry and webhooks
    "base_url": "Absolute http or https URL of the service, without user info.",
    "api_version": "Version of the service's API, in a form of your choice.",
    "service_name": "Name of the service.",
    "service_type": "Type of the service.",
    "credentials": "Credentials of the service, newest first.",
    "retrieved_at": "When the secrets were read.",
}
RESPONSE_NAMES: Final[Mapping[str, str]] = {
    "NOT_FOUND SERVICE_NOT_FOUND": "ServiceNotFound",
    "CREDENTIAL_NOT_FOUND NOT_FOUND SERVICE_NOT_FOUND": "CredentialNotFound",
}
TYPE_NAMES: Final[Mapping[str, str]] = {
    "ServiceSecret.secret": "ServiceSecretValue",
}

API_PART: Final = ApiPart(
    error_formats={re.compile("/exsvc/.*", re.DOTALL): REGISTRY},
    log_areas=frozenset({"registry"}),
    tags=TAGS,
    tag_of_prefix=TAG_OF_PREFIX,
    example_values=EXAMPLE_VALUES,
    example_bodies=EXAMPLE_BODIES,
    field_descriptions=FIELD_DESCRIPTIONS,
    response_names=RESPONSE_NAMES,
    type_names=TYPE_NAMES,
)

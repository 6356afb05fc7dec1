"""What the core does not know of this app: its part of the API document, and rules of its paths."""

import re
from typing import Final

from identity_platform.api.app_parts import ApiPart
from identity_platform.api.error_formats import OAUTH
from userflow.api_part.example_bodies import BODIES
from userflow.api_part.example_values import VALUES
from userflow.api_part.field_descriptions import DESCRIPTIONS
from userflow.api_part.names import RESPONSES, TYPES
from userflow.api_part.tags import TAG_OF_PREFIX, TAGS

API_PART: Final = ApiPart(
    error_formats={re.compile("/authmgr/token.*", re.DOTALL): OAUTH},
    probes=frozenset({"/uflow/health", "/uflow/ready", "/uflow/live"}),
    log_areas=frozenset({"clients", "directory", "keys", "mail", "user_index", "webhooks"}),
    tags=TAGS,
    tag_of_prefix=TAG_OF_PREFIX,
    security_schemes={
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "An access token of a sign-in or of the token endpoint.",
        },
        "oauth2": {
            "type": "oauth2",
            "description": "An access token of an application (RFC 6749 section 4.4). Its scopes are permissions.",
            "flows": {
                "clientCredentials": {"tokenUrl": "/authmgr/token", "refreshUrl": "/authmgr/token", "scopes": {}}
            },
        },
        "client": {
            "type": "http",
            "scheme": "basic",
            "description": "Client id and secret, each form-encoded (RFC 6749 section 2.3.1). "
            "A client can send them in the body.",
        },
    },
    base_schemas={
        "ClientAuthenticationFields": (
            "TokenRequest",
            ("client_id", "client_secret", "client_assertion_type", "client_assertion"),
        ),
    },
    example_values=VALUES,
    example_bodies=BODIES,
    field_descriptions=DESCRIPTIONS,
    response_names=RESPONSES,
    type_names=TYPES,
)

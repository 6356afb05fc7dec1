"""What the core itself states about the API, beside the parts of the apps."""

from typing import Final

from identity_platform.api import metrics
from identity_platform.api.app_parts import ApiPart

CORE_PART: Final = ApiPart(
    probes=frozenset({metrics.PATH}),
    pages=frozenset({"/docs/", "/static/"}),
    log_areas=frozenset({"api", "audit", "facts", "metrics", "outbound", "ratelimit", "requests", "tasks", "wakeups"}),
    example_values={
        # Errors
        "ErrorBody.code": "validation_failed",
        "ErrorBody.message": "Validation failed. See `details` for each field.",
        # Users and sign-in
        "message": "Done.",
        # Lists
        "page": 1,
        "limit": 20,
        "total": 1,
        "total_pages": 1,
    },
    field_descriptions={
        # Records
        "id": "Id of the record.",
        "name": "Name shown to people.",
        "description": "Text for people; can be empty.",
        "active": "Whether it is active. An inactive record is kept but rejected.",
        "metadata": "Free JSON object; an update replaces it as a whole.",
        "created_at": "When the record was created.",
        "updated_at": "When the record was last changed.",
        "expires_at": "When it expires.",
        # Lists
        "page": "Number of the page, from 1.",
        "limit": "Rows per page, 1 to 100; more counts as 100.",
        "total": "Number of rows on all pages.",
        "total_pages": "Number of pages.",
        "pagination": "Page and totals of the list.",
        "items": "Rows of the page, newest first.",
        # Results
        "message": "What was done, for people to read.",
        "success": "True: the call has succeeded.",
        # Tenants and branding
        "status": "State of the record.",
        # Metadata of issuers (RFC 8414, OpenID Connect Discovery)
        "error": "The error and its code.",
        "error_description": "For developers: says what is wrong.",
    },
)

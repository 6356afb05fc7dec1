"""Settings of libraries that depend on no variable."""

from collections.abc import Callable

STATIC_URL = "/static/"

CORS_URLS_REGEX = r"^/(uflow|authmgr|clientms|webauthn|exsvc|\.well-known)/"
CORS_ALLOW_HEADERS = ["authorization", "content-type", "x-enrollment-ticket", "x-request-id", "x-tenant-id"]
CORS_EXPOSE_HEADERS = [
    "Retry-After",
    "WWW-Authenticate",
    "X-Enrollment-Ticket",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "X-Request-ID",
]
CORS_PREFLIGHT_MAX_AGE = 600


def _static(path: str) -> Callable[[object], str]:
    """Return the URL of a static file as a function: unfold tries to import each string as a module, on every page."""
    return lambda _request: f"{STATIC_URL}{path}"


UNFOLD = {
    "SITE_TITLE": "Identity platform",
    "SITE_HEADER": "Identity platform",
    "SITE_URL": "/docs/",
    "SITE_SYMBOL": "shield_person",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": _static("console/icon.svg")}],
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "DASHBOARD_CALLBACK": "console.metrics.dashboard.context",
    "SIDEBAR": {"navigation": "console.frame.navigation.sidebar"},
    "STYLES": [_static("console/records.css"), _static("console/find.css")],
    "SCRIPTS": [_static("console/find.js"), _static("console/sent_once.js")],
    "ACCOUNT": {"navigation": "console.frame.navigation.own_links"},
}

REST_FRAMEWORK: dict[str, object] = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["userflow.sessions.authentication.BearerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["userflow.sessions.permissions.NoCaller"],
    "DEFAULT_PARSER_CLASSES": ["identity_platform.api.parsers.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["identity_platform.api.renderers.OrjsonRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "identity_platform.api.renderers.OnlyJson",
    "DEFAULT_SCHEMA_CLASS": "identity_platform.api.schema.ContractSchema",
    "EXCEPTION_HANDLER": "identity_platform.api.handlers.api_error_response",
    "UNAUTHENTICATED_USER": None,
    "UNAUTHENTICATED_TOKEN": None,
}
SPECTACULAR_SETTINGS: dict[str, object] = {
    "TITLE": "Identity platform",
    "DESCRIPTION": (
        "Tenants with databases of their own, their people, services and factors. "
        "Interfaces: registry 1.0, user flow 4.0.0, MFA 2.0, token issuing 1.1.0, client management 0.4.0.\n\n"
        "Besides what each operation states: 404 for a path that is not here, 405 with `Allow` for a method that a path does "
        "not take, 413 for a body over 1 MiB; each in the envelope of its route group (`/exsvc/`: RegistryProblem in "
        "`error`; `/authmgr/token*` and the OAuth endpoints below `/t/{slug}`: OAuthErrorBody; everywhere else: ErrorBody). "
        "The schema of each response lists the codes that it can have.\n\n"
        "Lists take `page` (from 1) and `limit` (at most 100, larger values count as 100; 20 unless stated), and return "
        "`page`, `limit`, `total` and `total_pages`, those of services and clients in `pagination`. A page past the end is "
        "empty. Lists that grow without end (audit events, webhook messages, exported users) take `cursor` instead and return "
        "`next_cursor`: send it as `cursor`; null on the last page. The lists of end users and of the users of a group "
        "or a role take both: pages by `page` become slower with their distance from both ends, pages by `cursor` do not, and "
        "users who are added meanwhile do not move them. A cursor belongs to one list and its filters (`cursor_invalid` "
        "elsewhere), and is sent without `page`.\n\n"
        "An operation that may ask for a step-up returns 401 `insufficient_user_authentication`: step up at "
        "`/authmgr/step-up`, then repeat the call.\n\n"
        "`null` for an optional field of a body counts as absent, unless the field states another meaning. Booleans in a query "
        "are `true`, `false`, `1` or `0`, in any case."
    ),
    "VERSION": "1.3.0",
    "LICENSE": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
    # Who that is differs with the installation, but linters require the field.
    "CONTACT": {"name": "The operator of this installation"},
    "SERVERS": [{"url": "/", "description": "This installation."}],
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "filter": True, "persistAuthorization": True, "docExpansion": "none"},
    "COMPONENT_SPLIT_REQUEST": True,
    # A PATCH requires what its serializer requires: serializers of changes state their fields as optional themselves.
    "COMPONENT_SPLIT_PATCH": False,
    "SCHEMA_PATH_PREFIX": "/",
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "POSTPROCESSING_HOOKS": ["identity_platform.api.schema.finish"],
}

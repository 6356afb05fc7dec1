"""OpenAPI 3.1 from the endpoints' contracts (`views.endpoint`) by drf-spectacular."""

from collections import defaultdict
from typing import Any

from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from identity_platform.api import errors, handlers
from identity_platform.api.examples import add_examples
from identity_platform.api.field_descriptions import describe
from identity_platform.api.fields import StrictField
from identity_platform.api.inherited_schemas import inherit
from identity_platform.api.operation_descriptions import describe_access
from identity_platform.api.views import Contract, Shape


class RegistryProblem(serializers.Serializer[object]):
    """The error in the registry's envelope."""

    code = serializers.CharField(help_text="Stable, for programs.")
    message = serializers.CharField(help_text="For people: says what to do next.")
    details = serializers.DictField(required=False, help_text="Figures, or a field's messages.")


class RegistryErrorBody(serializers.Serializer[object]):
    """Envelope under /exsvc/."""

    error = RegistryProblem()


class ErrorBody(serializers.Serializer[object]):
    """Envelope everywhere else."""

    error = serializers.CharField(help_text="Reason phrase of the status.")
    message = serializers.CharField(help_text="For people: says what to do next.")
    code = serializers.CharField(required=False, help_text="`insufficient_user_authentication`: step up and repeat.")
    details = serializers.DictField(required=False, help_text="A field's messages.")


class OAuthErrorBody(serializers.Serializer[object]):
    """RFC 6749 section 5.2."""

    error = serializers.CharField()
    error_description = serializers.CharField()


CHALLENGE = (
    '`Bearer`, with `error="invalid_token"` where a token was sent and is not valid, and on 403 with '
    '`error="insufficient_scope"` where the token lacks a permission (RFC 6750 section 3), or on 401 with '
    '`error="insufficient_user_authentication"`, `max_age` and `acr_values` where the session proves too little (RFC 9470). '
    "`DPoP` with `algs` instead for a token that was sent so (RFC 9449 section 7.1). "
    "`Basic` where a client does not prove who it is (RFC 6749 section 5.2)."
)
# Errors that any endpoint can return.
EVERYWHERE: list[type[errors.ApiError]] = [
    errors.ValidationFailed,
    errors.TooManyRequests,
    errors.ServerFault,
    errors.Unavailable,
]
WITH_BODY: list[type[errors.ApiError]] = [errors.MalformedBody, errors.BodyTooLarge, errors.UnsupportedMediaType]
WITH_TOKEN: list[type[errors.ApiError]] = [errors.NotSignedIn, errors.NotAllowed]


# In the order in which an integrator needs them.
TAGS = {
    "Sign-in": "The first step of admin users and end users, and forgotten passwords.",
    "Tokens": "The OAuth 2.0 token endpoint, introspection, revocation, and the keys that verify tokens elsewhere.",
    "Sessions": "List sessions, step up, sign out.",
    "OpenID Connect": "Below `/t/{slug}`: each tenant is an issuer of its own, with keys in its own database.",
    "Access checks": "Validate tokens and list their permissions.",
    "Profile": "The user's own name, e-mail address and password.",
    "End users": "The people of a tenant: register, list, change, deactivate, erase.",
    "E-mail proofs": "Verify an e-mail address.",
    "Invitations": "Invite users by e-mail.",
    "Import and export": "Import and export users with their password hashes.",
    "Passkeys": "WebAuthn: enrolling passkeys and signing in with them.",
    "TOTP": "Authenticator apps and backup codes.",
    "SMS": "Codes by text message.",
    "Factors": "List and remove second factors.",
    "Groups": "Groups of end users and their members.",
    "Roles": "Roles, their permissions and their users.",
    "Clients": "The applications of a tenant and their secrets.",
    "Registry": "External services and their encrypted credentials.",
    "Directories": "Active Directory and Entra ID: configure, test, synchronise.",
    "Domains": "Domains of a tenant, verified by DNS.",
    "Webhooks": "Webhook endpoints, deliveries and retries.",
    "Admin users": "Administrators of tenants and operators of the platform.",
    "Tenants": "For operators: create, change, suspend and delete tenants.",
    "Audit": "Who did what, on what, from where.",
    "Health": "Probes.",
}
TAGS_BY_PREFIX = {
    "/.well-known/jwks.json": "Tokens",
    "/.well-known/oauth-authorization-server": "Tokens",
    "/.well-known/oauth-authorization-server/t/": "OpenID Connect",
    "/.well-known/webauthn": "Passkeys",
    "/authmgr/groups": "Groups",
    "/authmgr/logout": "Sessions",
    "/authmgr/profile": "Profile",
    "/authmgr/roles": "Roles",
    "/authmgr/sessions": "Sessions",
    "/authmgr/step-up": "Sessions",
    "/authmgr/token": "Tokens",
    "/authmgr/validate": "Access checks",
    "/clientms/": "Clients",
    "/exsvc/": "Registry",
    "/t/": "OpenID Connect",
    "/t/domain-check": "Domains",
    "/uflow/admin/audit": "Audit",
    "/uflow/admin/auth/": "Sign-in",
    "/uflow/admin/enduser/": "End users",
    "/uflow/admin/enduser/export": "Import and export",
    "/uflow/admin/enduser/import": "Import and export",
    "/uflow/admin/invitations": "Invitations",
    "/uflow/admin/tenants": "Tenants",
    "/uflow/admin/users": "Admin users",
    "/uflow/auth/": "Sign-in",
    "/uflow/directory/": "Directories",
    "/uflow/federation/": "Domains",
    "/uflow/health": "Health",
    "/uflow/invitations/": "Invitations",
    "/uflow/live": "Health",
    "/uflow/ready": "Health",
    "/uflow/user/clients/register": "End users",
    "/uflow/user/email/": "E-mail proofs",
    "/uflow/user/enduser/": "End users",
    "/uflow/webhooks/": "Webhooks",
    "/webauthn/": "Passkeys",
    "/webauthn/admin/factors": "Factors",
    "/webauthn/admin/totp/": "TOTP",
    "/webauthn/factors": "Factors",
    "/webauthn/sms/": "SMS",
    "/webauthn/totp/": "TOTP",
}


class StrictFieldSchema(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # its metaclass is untyped
    """Pass the field's own schema to drf-spectacular."""

    target_class = StrictField
    match_subclasses = True

    def map_serializer_field(self, auto_schema: object, direction: str) -> dict[str, object]:
        schema: dict[str, object] = self.target.openapi()
        return schema


Parameter = OpenApiParameter | serializers.Serializer[object] | Shape


def _header(name: str, meaning: str, response: list[str] | bool = False, *, kind: type = str) -> OpenApiParameter:
    return OpenApiParameter(name, kind, OpenApiParameter.HEADER, description=meaning, response=response)


class ContractSchema(AutoSchema):
    """Describe an operation by the `Contract` of its action."""

    @property
    def contract(self) -> Contract:
        return getattr(self._action, "contract", None) or Contract()

    @property
    def _action(self) -> object:
        return getattr(self.view, getattr(self.view, "action", None) or self.method.lower(), None)

    @property
    def _doc(self) -> list[str]:
        return (self._action.__doc__ or "").strip().split("\n")

    def get_tags(self) -> list[str]:
        """Return the tag of the longest matching path prefix."""
        return [TAGS_BY_PREFIX[max((prefix for prefix in TAGS_BY_PREFIX if self.path.startswith(prefix)), key=len)]]

    def get_operation_id(self) -> str:
        return self.contract.id

    def get_summary(self) -> str | None:
        return self._doc[0] or None

    def get_description(self) -> str:  # type: ignore[override]  # as drf-spectacular calls it
        return "\n".join(
            [*map(str.strip, self._doc[1:]), describe_access(self.contract, self.view.get_permissions())]
        ).strip()

    def map_parsers(self) -> list[str]:
        """Return the first media type only: with two, generators send the model as the wrong one."""
        return list(super().map_parsers()[:1])

    def get_request_serializer(self) -> Shape | None:
        return self.contract.body

    def _get_request_body(self, direction: str = "request") -> Any:
        # drf-spectacular leaves out the body of a DELETE, though RFC 9110 section 9.3.5 lets an API define one.
        stated = self.method
        if stated == "DELETE" and self.contract.body:
            self.method = "POST"
        try:
            return super()._get_request_body(direction)  # type: ignore[no-untyped-call]  # it has no types
        finally:
            self.method = stated

    def get_auth(self) -> list[dict[str, object]]:
        bearer: list[dict[str, object]] = [{"bearer": []}]
        return {"required": bearer, "optional": [*bearer, {}], "none": []}[self.contract.token]

    def get_override_parameters(self) -> list[Parameter]:
        contract, statuses = self.contract, list(map(str, self.get_response_serializers()))
        counted = [status for status in statuses if status != "401"]
        return [
            *([contract.query] if contract.query else []),
            *(_header(name, meaning) for name, meaning in contract.headers.items()),
            *(
                _header(name, meaning, list(map(str, contract.returns)))
                for name, meaning in contract.answer_headers.items()
            ),
            *(_header(name, meaning, counted, kind=int) for name, meaning in contract.limit_headers.items()),
            _header("WWW-Authenticate", CHALLENGE, [status for status in statuses if status in ("401", "403")]),
            _header("Retry-After", "Seconds until a call can pass.", ["429", "503"], kind=int),
            _header("X-Request-ID", "Id of this request.", True),
        ]

    def get_extensions(self) -> dict[str, object]:
        """List the rows of the action table that the operation checks (`userflow.sessions.assurance`)."""
        rows = self.contract.assurance
        return {"x-assurance": [str(row) for row in ([rows] if isinstance(rows, str) else rows)]} if rows else {}

    def _is_list_view(self, serializer: object = None) -> bool:
        """Return False: lists are objects with rows and totals, never bare arrays."""
        return False

    def get_response_serializers(self) -> Any:
        contract = self.contract
        possible = [*EVERYWHERE, *(WITH_BODY if contract.body else []), *contract.errors]
        if contract.token != "none":
            possible += WITH_TOKEN
        if "{" in self.path:
            possible.append(errors.NotFound)
        by_status: dict[int, list[type[errors.ApiError]]] = defaultdict(list)
        for error in possible:
            if error not in by_status[error.status]:
                by_status[error.status].append(error)
        answers: dict[str | int, OpenApiResponse] = {}
        for status, shape in contract.returns.items():
            answers[status] = OpenApiResponse(shape) if shape else OpenApiResponse(description="No body.")
        for status, kinds in sorted(by_status.items()):
            if status not in answers:
                answers[status] = OpenApiResponse(
                    self._envelope(), description=" ".join(self._describe(k) for k in kinds)
                )
        return answers

    def _describe(self, error: type[errors.ApiError]) -> str:
        text = error.message.replace("{retry_after}", "60")
        return f"`{error.code}`: {text}" if self.path.startswith("/exsvc/") else text

    def _envelope(self) -> type[serializers.Serializer[object]]:
        if self.path.startswith("/exsvc/"):
            return RegistryErrorBody
        return OAuthErrorBody if handlers.is_oauth(self.path) else ErrorBody


def finish(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Add the tags in order, the security scheme and the format of ids in paths.

    drf-spectacular adds the scheme (RFC 6750) only if it finds the authentication class itself, and here each operation
    states its own.
    """
    result["tags"] = [{"name": name, "description": says} for name, says in TAGS.items()]
    bearer = {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
    result.setdefault("components", {})["securitySchemes"] = {"bearer": bearer}
    for path in result.get("paths", {}).values():
        for operation in path.values():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body:
                _take_null(body["schema"], result["components"]["schemas"])
            for parameter in operation.get("parameters", []):
                if parameter.get("in") == "path" and parameter["name"].endswith("id"):
                    parameter["schema"] = {"type": "string", "format": "uuid"}
    describe(result)
    add_examples(result)
    inherit(result["components"]["schemas"])
    return result


def _take_null(schema: dict[str, Any], components: dict[str, Any]) -> None:
    """Allow null for the optional fields of a JSON body, as `NullIsAbsent` does. Idempotent."""
    if "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    for name, field in schema.get("properties", {}).items():
        _take_null(field, components)
        if name in schema.get("required", []):
            continue
        if isinstance(field.get("type"), str):
            field["type"] = [field["type"], "null"]
            if "enum" in field:
                field["enum"] = [*field["enum"], None]
        elif "type" not in field and {"type": "null"} not in field.get("oneOf", []):
            described = {key: field.pop(key) for key in ("description", "default") if key in field}
            inner = dict(field)
            field.clear()
            field.update({"oneOf": [*inner.get("oneOf", [inner]), {"type": "null"}], **described})

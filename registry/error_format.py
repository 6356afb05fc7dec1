"""The form of errors that the registry's specification defines: codes of its own, in an object `error`."""

from collections.abc import Collection, Mapping
from typing import Final

from identity_platform.api import errors
from identity_platform.api.error_formats import DETAILS, MESSAGE, ErrorFormat, Schema
from registry.errors import (
    CredentialExists,
    CredentialNotFound,
    ServiceExists,
    ServiceInactive,
    ServiceInUse,
    ServiceNotFound,
)
from tenants.errors import TenantRequired
from userflow.errors import InsufficientAuthentication

# The codes of classes and of those that inherit from them.
_CODES: Final[Mapping[type[errors.ApiError], str]] = {
    errors.ApiError: "VALIDATION_ERROR",
    errors.NotSignedIn: "UNAUTHORIZED",
    errors.NotAllowed: "FORBIDDEN",
    errors.NotFound: "NOT_FOUND",
    errors.MethodNotAllowed: "METHOD_NOT_ALLOWED",
    errors.Conflict: "CONFLICT",
    errors.BodyTooLarge: "BODY_TOO_LARGE",
    errors.UnsupportedMediaType: "UNSUPPORTED_MEDIA_TYPE",
    errors.TooManyRequests: "RATE_LIMITED",
    errors.ServerFault: "INTERNAL_ERROR",
    errors.Unavailable: "UNAVAILABLE",
    # The specification has no code of its own for it.
    InsufficientAuthentication: InsufficientAuthentication.code,
    TenantRequired: "TENANT_REQUIRED",
    ServiceNotFound: "SERVICE_NOT_FOUND",
    ServiceExists: "SERVICE_EXISTS",
    ServiceInUse: "SERVICE_IN_USE",
    ServiceInactive: "SERVICE_INACTIVE",
    CredentialNotFound: "CREDENTIAL_NOT_FOUND",
    CredentialExists: "CREDENTIAL_EXISTS",
}


class RegistryFormat(ErrorFormat):
    schema_name = "RegistryProblem"
    prefix = "Registry"
    paths = "the registry"

    def body(self, error: errors.ApiError) -> dict[str, object]:
        problem: dict[str, object] = {"code": _code(type(error)), "message": error.text}
        if error.details:
            problem["details"] = error.details
        return {"error": problem}

    def codes(self, kind: type[errors.ApiError]) -> Collection[str]:
        return (_code(kind),)

    def schema(self, others: Collection[ErrorFormat]) -> Schema:
        return {
            "type": "object",
            "description": "The `error` of endpoints below /exsvc/.",
            "properties": {
                "code": {"type": "string", "description": "Stable, for programs."},
                "message": MESSAGE,
                "details": {**DETAILS, "description": "Figures, or a field's messages."},
            },
            "required": ["code", "message"],
        }

    def narrowed(self, body: Schema, codes: Schema) -> Schema:
        return {"type": "object", "properties": {"error": super().narrowed(body, codes)}, "required": ["error"]}


def _code(kind: type[errors.ApiError]) -> str:
    return next(_CODES[base] for base in kind.__mro__ if base in _CODES)


REGISTRY: Final = RegistryFormat()

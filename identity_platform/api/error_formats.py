"""The forms of error bodies: the common one, and that of OAuth. An app can have another one for its paths (`app_parts`)."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final

from identity_platform.api.errors import ApiError, OAuthError

Schema = dict[str, Any]

MESSAGE: Final = {"type": "string", "description": "For people: says what to do next."}
DETAILS: Final = {"type": "object", "additionalProperties": {}}


class ErrorFormat:
    """The form of the errors of all paths that have no other one."""

    # The name of the body's schema, and the prefix of the names of responses.
    schema_name: ClassVar[str] = "ErrorBody"
    prefix: ClassVar[str] = ""
    # The paths that have this form, in a sentence of the API document. Not used for the common one.
    paths: ClassVar[str] = ""
    # Headers that every error has besides its own.
    headers: ClassVar[Mapping[str, str]] = {}

    def body(self, error: ApiError) -> dict[str, object]:
        body: dict[str, object] = {"error": error.phrase, "code": error.code, "message": error.text}
        if error.details:
            body["details"] = error.details
        return body

    def codes(self, kind: type[ApiError]) -> Collection[str]:
        """Return the codes that errors of a class have in this form."""
        return kind.codes()

    def schema(self, others: Collection["ErrorFormat"]) -> Schema:
        """Return the schema of the body, or of the part with the code. `others` are the forms of other paths."""
        return {
            "type": "object",
            "description": f"The error of all endpoints but those of {' and of '.join(other.paths for other in others)}.",
            "properties": {
                "error": {"type": "string", "description": "Reason phrase of the status."},
                "code": {"type": "string", "description": "Stable, for programs."},
                "message": MESSAGE,
                "details": {**DETAILS, "description": "A field's messages."},
            },
            "required": ["error", "code", "message"],
        }

    def narrowed(self, body: Schema, codes: Schema) -> Schema:
        """Return the schema of bodies with one of some codes. `body` refers to the schema."""
        return {"allOf": [body, {"properties": {"code": codes}}]}


class OAuthFormat(ErrorFormat):
    """The form of RFC 6749 section 5.2, of token endpoints and their like."""

    schema_name = "OAuthErrorBody"
    prefix = "OAuth"
    paths = "OAuth"
    headers = {"Cache-Control": "no-store", "Pragma": "no-cache"}  # RFC 6749 section 5.1
    # The codes of errors that are no OAuthError.
    _CODES: ClassVar[Mapping[int, str]] = {
        401: "invalid_client",
        403: "unauthorized_client",
        429: "temporarily_unavailable",
        500: "server_error",
        503: "temporarily_unavailable",
    }

    def body(self, error: ApiError) -> dict[str, object]:
        name = error.code if isinstance(error, OAuthError) else self._code(error.status)
        # OAuth has no other field that could name the parameter.
        each = [f"{name}: {text}" for name, texts in error.messages.items() for text in texts]
        text = " ".join(each) or error.text
        # RFC 6749 section 5.2 allows only ASCII there, without double quotes and backslashes.
        plain = text.replace('"', "'").replace("\\", "/").encode("ascii", "replace").decode()
        cause = {"code": error.oauth_cause} if error.oauth_cause else {}
        return {"error": name, "error_description": plain, **cause}

    def codes(self, kind: type[ApiError]) -> Collection[str]:
        return kind.codes() if issubclass(kind, OAuthError) else (self._code(kind.status),)

    def schema(self, others: Collection[ErrorFormat]) -> Schema:
        return {
            "type": "object",
            "description": "The error of OAuth endpoints (RFC 6749 section 5.2).",
            "properties": {
                "error": {"type": "string"},
                "error_description": {"type": "string"},
                "code": {
                    "type": "string",
                    "enum": ["tenant_suspended"],
                    "description": "Only while the tenant is suspended. "
                    "Its refresh tokens are valid again once it is resumed.",
                },
            },
            "required": ["error", "error_description"],
        }

    def narrowed(self, body: Schema, codes: Schema) -> Schema:
        return {"allOf": [body, {"properties": {"error": codes}}]}

    def _code(self, status: int) -> str:
        return self._CODES.get(status, "invalid_request")


COMMON: Final = ErrorFormat()
OAUTH: Final = OAuthFormat()

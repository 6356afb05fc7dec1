"""The errors of the API. They are raised, never returned; `handlers.py` turns them into responses."""

from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import ClassVar, Final

# Of proofs of possession of a key (RFC 9449 section 5.1).
DPOP_ALGORITHMS: Final = "ES256 RS256 EdDSA"


class ApiError(Exception):
    """An error response: `status` is the HTTP status, `code` its stable name for programs, `message` the default text.

    Every class states a code of its own, in snake_case. A class inherits a code only if programs must not tell it from its
    parent (tests/identity_platform/api/test_error_codes.py lists them). docs/errors.md describes every code.
    `details` maps a field to its messages (validation) or a name to a number; `headers` are sent with the response.
    """

    status: ClassVar[int] = 400
    code: ClassVar[str]
    message: ClassVar[str] = "The request is invalid."
    # The operations that can all raise it, also if their contracts do not list it: "any", those with a "body", with a
    # "token", with a "policy" of assurance or in a "tenant". Not inherited.
    implied_by: ClassVar[str] = ""
    # The `code` at OAuth endpoints, beside `error`, for what clients must tell from other causes of the same `error`.
    oauth_cause: str = ""
    # Whether it is audited when the caller is known, also when a page shows it with another status.
    audited: ClassVar[bool] = False

    def __init__(
        self,
        message: str | None = None,
        *,
        details: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.text = message or self.message
        self.details = details
        self.headers = {**self.own_headers(), **(headers or {})}
        super().__init__(self.text)

    def own_headers(self) -> dict[str, str]:
        return {}

    @classmethod
    def codes(cls) -> Collection[str]:
        """Return the codes that errors of this class can have."""
        return (cls.code,)

    @property
    def messages(self) -> dict[str, list[str]]:
        """Return the details as lists of messages."""
        return {
            name: [str(text) for text in told] if isinstance(told, list) else [str(told)]
            for name, told in (self.details or {}).items()
        }

    @property
    def phrase(self) -> str:
        """Return the reason phrase of the status (RFC 9110 section 15)."""
        return HTTPStatus(self.status).phrase


class ValidationFailed(ApiError):
    """400: fields are missing or invalid; `details` names each of them."""

    code = "validation_failed"
    implied_by = "any"
    message = "Validation failed. See `details` for each field."


class CursorInvalid(ApiError):
    """400: the cursor is malformed, or belongs to another list or other filters."""

    code = "cursor_invalid"
    message = (
        "The cursor is malformed or belongs to another list. Send `next_cursor` of the previous page with the same filters,"
        " or start again without a cursor."
    )


class MalformedBody(ApiError):
    """400: the body is not JSON, or is JSON with more than one meaning."""

    code = "body_malformed"
    implied_by = "body"
    message = "The body is not valid JSON."


class UnknownHost(ApiError):
    """400: the Host header names no host of this platform."""

    code = "host_not_allowed"
    implied_by = "any"
    message = "The Host header names no host of this platform. The operator sets ALLOWED_HOSTS."


class NotSignedIn(ApiError):
    """401: no valid access token."""

    status = 401
    code = "authentication_required"
    implied_by = "token"
    # WWW-Authenticate (RFC 6750 section 3): with a parameter at least, and no error if the request carries no token.
    challenge: ClassVar[str] = 'Bearer realm="api"'
    message = "Authentication is required. Send a valid access token: `Authorization: Bearer <ACCESS_TOKEN>`."

    def own_headers(self) -> dict[str, str]:
        return {"WWW-Authenticate": self.challenge}


class AccessTokenInvalid(NotSignedIn):
    """401: the access token is malformed, expired, revoked or of a session that has ended (RFC 6750 section 3.1)."""

    code = "access_token_invalid"
    implied_by = "token"
    challenge = 'Bearer error="invalid_token"'


class NotAllowed(ApiError):
    """403: the token is valid but lacks the permission."""

    status = 403
    code = "forbidden"
    implied_by = "token"
    audited = True
    message = "Your access token lacks the permission for this call."


class InsufficientScope(NotAllowed):
    """403: the token lacks a permission, or its kind can never have it (RFC 6750 section 3.1).

    Not for what no token may do, such as removing the last admin.
    """

    code = "insufficient_scope"
    implied_by = "token"

    def __init__(
        self, message: str | None = None, *, details: Mapping[str, object] | None = None, scope: str | None = None
    ) -> None:
        challenge = 'Bearer error="insufficient_scope"' + (f', scope="{scope}"' if scope else "")
        super().__init__(message, details=details, headers={"WWW-Authenticate": challenge})
        self.scope = scope


class NotFound(ApiError):
    """404: the resource does not exist, or the caller may not know that it does."""

    status = 404
    code = "not_found"
    message = "The resource does not exist."


class UnknownPath(NotFound):
    """404: no endpoint has this path."""

    code = "path_not_found"
    message = "No endpoint has this path. See /docs/ for all endpoints."


class MethodNotAllowed(ApiError):
    """405: the path does not support this method."""

    status = 405
    code = "method_not_allowed"
    message = "This path does not support the method. The Allow header lists the supported methods."


class Conflict(ApiError):
    """409: the request conflicts with an existing resource."""

    status = 409
    code = "conflict"
    message = "The request conflicts with an existing resource."


class BodyTooLarge(ApiError):
    """413: the body is over the size limit."""

    status = 413
    code = "body_too_large"
    implied_by = "body"
    message = "The body is larger than 1 MiB. Send less at a time."


class UnsupportedMediaType(ApiError):
    """415: the endpoint does not read this type of body."""

    status = 415
    code = "unsupported_media_type"
    implied_by = "body"
    message = "Send the body as `Content-Type: application/json` in UTF-8."

    @classmethod
    def expecting(cls, media_type: str) -> "UnsupportedMediaType":
        """Return the error of an endpoint that reads `media_type`."""
        return cls(f"Send the body as `Content-Type: {media_type}` in UTF-8.")


class TooManyRequests(ApiError):
    """429: a rate limit is reached; the next request can pass after `retry_after` seconds."""

    status = 429
    code = "rate_limited"
    implied_by = "any"
    message = "Too many requests. Retry after {retry_after} seconds."

    def __init__(self, message: str | None = None, *, retry_after: int) -> None:
        self.retry_after = max(1, retry_after)
        text = message or self.message.format(retry_after=self.retry_after)
        super().__init__(text, headers={"Retry-After": str(self.retry_after)})


class ServerFault(ApiError):
    """500: a defect of the platform. It is logged under the request id, and the caller gets only that id."""

    status = 500
    code = "internal_error"
    implied_by = "any"
    message = "The server failed. Quote the X-Request-ID header of this response when you report it."


class Unavailable(ApiError):
    """503: a server that the platform depends on does not respond; the caller may retry."""

    status = 503
    code = "unavailable"
    implied_by = "any"
    message = "The service is temporarily unavailable. Try again."

    def __init__(self, message: str | None = None, *, retry_after: int = 2) -> None:
        super().__init__(message, headers={"Retry-After": str(retry_after)})


class OAuthError(ApiError):
    """400 of the token endpoints, as RFC 6749 section 5.2 defines them: `code` is one of its error codes.

    `because` is the error that causes it, for callers who may learn the cause.
    """

    code = "invalid_request"
    message = "The request is not a valid OAuth 2.0 request (RFC 6749 section 5.2)."

    def __init__(
        self,
        message: str | None = None,
        *,
        because: ApiError | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(because.text if because else message, headers=headers)
        if because:
            self.oauth_cause = because.oauth_cause

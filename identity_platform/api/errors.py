"""Errors: every way in which the API says no. Raised, never returned; `handlers.py` gives them their envelope."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar


class ApiError(Exception):
    """An error: `status` is the HTTP status, `code` the registry's code, `message` what to do next.

    `details` maps a field to its messages (validation) or a name to a figure; `headers` go out with the answer.
    """

    status: ClassVar[int] = 400
    code: ClassVar[str] = "VALIDATION_ERROR"
    # Whether error bodies outside the registry carry `code` as well.
    shows_code: ClassVar[bool] = False
    message: ClassVar[str] = "The request is not valid."
    # Whether a rejection of a known caller is audited (tenants.rejections), also where a page shows it with another status.
    audited: ClassVar[bool] = False

    def __init__(
        self,
        message: str | None = None,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.text = message or self.message
        self.details = details
        self.headers = dict(headers or {})
        super().__init__(self.text)

    @property
    def phrase(self) -> str:
        """The reason phrase of the status (RFC 9110 section 15)."""
        return HTTPStatus(self.status).phrase


class ValidationFailed(ApiError):
    """400: members are missing or of the wrong form; `details` names each of them."""

    message = "Some members are not valid: see details."


class MalformedBody(ApiError):
    """400: the body is not JSON, or JSON that must not be taken."""

    message = "The body is not valid JSON."


class OddHost(ApiError):
    """400: the Host header names no host of this platform."""

    message = "The Host header names no host of this platform: an operator sets ALLOWED_HOSTS."


class NotSignedIn(ApiError):
    """401: no valid access token."""

    status = 401
    code = "UNAUTHORIZED"
    # WWW-Authenticate (RFC 6750 section 3): without an error for a request that carries no token.
    challenge: ClassVar[str] = "Bearer"
    message = "Send a valid access token, from a sign-in or a refresh: `Authorization: Bearer <ACCESS_TOKEN>`."

    def __init__(
        self,
        message: str | None = None,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, details=details, headers={"WWW-Authenticate": self.challenge, **(headers or {})})


class AccessTokenInvalid(NotSignedIn):
    """401: the access token is malformed, expired, revoked or of a session that has ended (RFC 6750 section 3.1)."""

    challenge = 'Bearer error="invalid_token"'


class NotAllowed(ApiError):
    """403: a valid token that may not do this."""

    status = 403
    code = "FORBIDDEN"
    audited = True
    message = "Your token does not carry the permission that this call needs."


class InsufficientScope(NotAllowed):
    """403: the token lacks a permission, or is of a kind that lacks it always (RFC 6750 section 3.1).

    Not for what no token may do, such as removing the last admin.
    """

    def __init__(
        self, message: str | None = None, *, details: Mapping[str, Any] | None = None, scope: str | None = None
    ) -> None:
        challenge = 'Bearer error="insufficient_scope"' + (f', scope="{scope}"' if scope else "")
        super().__init__(message, details=details, headers={"WWW-Authenticate": challenge})
        self.scope = scope


class NotFound(ApiError):
    """404: nothing here under this name, or nothing that the caller may know of."""

    status = 404
    code = "NOT_FOUND"
    message = "Nothing was found here."


class UnknownPath(NotFound):
    """404: no endpoint has this path."""

    message = "No endpoint has this path: see /docs/ for those there are."


class MethodNotAllowed(ApiError):
    """405: the path exists, this method on it does not."""

    status = 405
    code = "METHOD_NOT_ALLOWED"
    message = "This path does not take this method: the Allow header lists those it takes."


class Conflict(ApiError):
    """409: it clashes with something that is there."""

    status = 409
    code = "CONFLICT"
    message = "It clashes with something that exists."


class BodyTooLarge(ApiError):
    """413: over the limit of a request's body."""

    status = 413
    code = "BODY_TOO_LARGE"
    message = "The body is larger than 1 MiB: send less at a time."


class UnsupportedMediaType(ApiError):
    """415: the body is not what the endpoint reads."""

    status = 415
    code = "UNSUPPORTED_MEDIA_TYPE"
    message = "Send the body as `Content-Type: application/json` in UTF-8."

    @classmethod
    def wanting(cls, media_type: str) -> "UnsupportedMediaType":
        """The error of an endpoint that reads `media_type`."""
        return cls(f"Send the body as `Content-Type: {media_type}` in UTF-8.")


class TooManyRequests(ApiError):
    """429: a limit is reached; `retry_after` seconds until a call can pass."""

    status = 429
    code = "RATE_LIMITED"
    message = "Too many requests: wait as long as Retry-After says."

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after: int,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        wait = max(1, retry_after)
        super().__init__(message, details=details, headers={"Retry-After": str(wait), **(headers or {})})
        self.retry_after = wait


class ServerFault(ApiError):
    """500: our defect. The log has it under the request id; the caller gets no more than that id."""

    status = 500
    code = "INTERNAL_ERROR"
    message = "Something failed on our side. Quote the X-Request-ID of this answer when you report it."


class Unavailable(ApiError):
    """503: something that we depend on does not answer; trying again is right."""

    status = 503
    code = "UNAVAILABLE"
    message = "A server behind this call does not answer at the moment: try again."

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after: int = 2,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, details=details, headers={"Retry-After": str(retry_after), **(headers or {})})


class OAuthError(ApiError):
    """400 of the token endpoints, in the form of RFC 6749 section 5.2: `error` is one of its codes."""

    error: ClassVar[str] = "invalid_request"
    message = "The request is not a valid OAuth 2.0 request (RFC 6749 section 5.2)."

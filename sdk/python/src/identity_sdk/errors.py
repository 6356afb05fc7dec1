"""Errors: one class for error responses of the platform, and one for each thing that the SDK itself rejects."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import httpx2

STEP_UP = "insufficient_user_authentication"
# Seconds after which a request may be repeated that was rejected while the keys could not be fetched.
RETRY_AFTER = 5


class IdentityError(Exception):
    """The parent of every error of this package. Network errors are those of httpx2."""


class SignedOut(IdentityError):
    """No session is stored, or the platform has ended it: sign in again."""


class InvalidResponse(IdentityError):
    """A success without the expected fields, such as the page of a proxy. No tokens were stored."""


class WebhookInvalid(IdentityError):
    """The signature of a webhook is missing or wrong, or its time is more than five minutes off."""


class AccessDenied(IdentityError):
    """A request to your API is rejected: 401, 403, or 503 while the keys cannot be fetched.

    Attributes:
        challenge: value for the header WWW-Authenticate (RFC 6750 section 3); empty for 503.
    """

    def __init__(self, status: int, code: str, message: str, challenge: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.challenge = status, code, message, challenge

    @property
    def headers(self) -> dict[str, str]:
        if self.status == 503:
            return {"Retry-After": str(RETRY_AFTER)}
        return {"WWW-Authenticate": self.challenge} if self.challenge else {}

    @property
    def body(self) -> dict[str, str]:
        """Return the body of the response, in the platform's own format."""
        return {"error": HTTPStatus(self.status).phrase, "code": self.code, "message": self.message}


class ApiError(IdentityError):
    """An error response of the platform.

    Attributes:
        code: stable name, such as `email_not_verified`; of the registry in upper case, such as `SERVICE_NOT_FOUND`.
        details: messages by field, or further facts; empty if the response has none.
        retry_after: seconds to wait before the call is repeated, or None.
        request_id: to quote to the platform's operators.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
        request_id: str | None = None,
        challenge: str = "",
    ) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status, self.code, self.message = status, code, message
        self.details: Mapping[str, Any] = details or {}
        self.retry_after, self.request_id, self.challenge = retry_after, request_id, challenge


class StepUpRequired(ApiError):
    """The session has not proven enough for this call (RFC 9470).

    Call `step_up`, then repeat the call once. If `needs_factor`, that does not help: the session must be of a sign-in with
    a second factor. Have the user enroll one if there is none, then sign in again with it.
    """

    @property
    def needs_factor(self) -> bool:
        """Return whether the user must enroll a factor, if there is none, and sign in again with it."""
        return self.max_age is None

    @property
    def max_age(self) -> int | None:
        """Return how many seconds old the proof may be."""
        found = re.search(r"max_age=\"?([0-9]{1,9})", self.challenge)
        return int(found[1]) if found else None

    @property
    def acr_values(self) -> str | None:
        """Return the level that the session needs, such as `aal2`."""
        found = re.search(r'acr_values="([^"]*)"', self.challenge)
        return found[1] if found else None


def error_of(response: httpx2.Response) -> ApiError:
    """Read an error response: the general format, the registry's, the one of OAuth, or a body that is none of these."""
    try:
        body: Any = response.json()
    except (ValueError, RecursionError):
        body = None
    fields: Mapping[str, Any] = body if isinstance(body, dict) else {}
    error = fields.get("error")
    if isinstance(error, dict):
        fields, error = error, None
    phrase = response.reason_phrase or "Unknown Error"
    # An OAuth error has no `message`; its `error` is the code (RFC 6749 section 5.2).
    code = fields.get("code") or (error if "message" not in fields else None) or phrase.lower().replace(" ", "_")
    message = fields.get("message") or fields.get("error_description") or phrase
    details, after = fields.get("details"), response.headers.get("Retry-After", "")
    kind = StepUpRequired if response.status_code == 401 and code == STEP_UP else ApiError
    return kind(
        response.status_code,
        str(code),
        str(message),
        details=details if isinstance(details, dict) else None,
        retry_after=_seconds_of(after),
        request_id=response.headers.get("X-Request-ID"),
        challenge=response.headers.get("WWW-Authenticate", ""),
    )


def _seconds_of(retry_after: str) -> int | None:
    """Read the header Retry-After: seconds, or a date (RFC 9110 section 10.2.3)."""
    if re.fullmatch("[0-9]{1,9}", retry_after):
        return int(retry_after)
    try:
        then = parsedate_to_datetime(retry_after)
        return max(0, math.ceil((then - datetime.now(UTC)).total_seconds()))
    except (ValueError, TypeError, OverflowError):  # TypeError: a date without a time zone
        return None


def json_of(response: httpx2.Response) -> Any:
    """Return the body of a success. Raises ApiError, InvalidResponse."""
    if not response.is_success:
        raise error_of(response)
    try:
        return response.json() if response.content else None
    except (ValueError, RecursionError) as error:
        raise InvalidResponse("The response is not JSON.") from error


def fields_of(response: httpx2.Response, **expected: type | tuple[type, ...]) -> dict[str, Any]:
    """Return the fields of a success, of which some must have these types. Raises ApiError, InvalidResponse."""
    return checked_fields(json_of(response), **expected)


def checked_fields(said: Any, **expected: type | tuple[type, ...]) -> dict[str, Any]:
    """Return the fields if these have these types: text that is not empty, finite numbers. Raises InvalidResponse."""
    if not isinstance(said, Mapping):
        raise InvalidResponse("The response is not a JSON object.")
    for name, kind in expected.items():
        value = said.get(name)
        if isinstance(value, (int, float)):
            # False for NaN too; a bool is an int.
            is_valid = -1e12 < value < 1e12 and not isinstance(value, bool)
        else:
            is_valid = value != ""
        if not isinstance(value, kind) or not is_valid:
            raise InvalidResponse(f"The response has no valid `{name}`.")
    return dict(said)


def is_token_rejected(response: httpx2.Response) -> bool:
    """Whether a new access token may help: the token has expired or was revoked (RFC 6750 section 3.1)."""
    return response.status_code == 401 and 'error="invalid_token"' in response.headers.get("WWW-Authenticate", "")

"""Errors of authorization requests and of the hosted pages."""

from collections.abc import Collection
from typing import ClassVar, Final

from identity_platform.api.errors import ApiError, OAuthError
from openid.authorization.responses import QUERY
from tenants.errors import UnknownTenant

LOGIN_REQUIRED: Final = "login_required"
CONSENT_REQUIRED: Final = "consent_required"
ACCESS_DENIED: Final = "access_denied"
TEMPORARILY_UNAVAILABLE: Final = "temporarily_unavailable"


class TenantMoved(UnknownTenant):
    """404 of an endpoint: the tenant's endpoints are at its other address alone. Pages redirect there, forms do not."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self.root = root


class RequestRejected(Exception):
    """An authorization request is rejected (RFC 6749 section 4.1.2.1, OpenID Connect Core section 3.1.2.6).

    `redirect_uri` is set once the client and the URI are known to be right: only then may the browser be sent there with the
    error. Otherwise a page shows it.
    """

    def __init__(
        self,
        error: str,
        description: str,
        *,
        redirect_uri: str | None = None,
        state: str | None = None,
        response_mode: str = QUERY,
    ) -> None:
        self.error = error
        self.description = description
        self.redirect_uri = redirect_uri
        self.state = state
        self.response_mode = response_mode
        super().__init__(error)


class AuthorizationRejected(ApiError):
    """400 of a page: an authorization request is rejected, and no address is known that could get the error."""

    code = "authorization_rejected"
    message = "The application has sent a request that cannot be answered."


class LogoutRejected(ApiError):
    """400: a logout request whose hint, client or address is wrong; the browser is not sent on."""

    code = "logout_rejected"
    message = "The application has sent a logout request that cannot be answered."


class RequestExpired(ApiError):
    """400: the authorization request is unknown, expired, finished, or another browser's."""

    code = "authorization_request_expired"
    message = "This sign-in has expired or is already finished. Go back to the application and start again."


class StepRequired(Exception):
    """The user has to do something before the request is complete: `step` of `openid.authorization.flow.Step`."""

    def __init__(self, step: str):
        self.step = step
        super().__init__(step)


class UnsupportedGrantType(OAuthError):
    """400 `unsupported_grant_type` (RFC 6749 section 5.2)."""

    code = "unsupported_grant_type"
    message = "grant_type must be one of `grant_types_supported` of the issuer's metadata."


class AuthorizationPending(OAuthError):
    """400 `authorization_pending` (RFC 8628 section 3.5): the user has not decided yet."""

    code = "authorization_pending"
    message = "The user has not approved this device yet. Poll again after `interval` seconds."


class SlowDown(OAuthError):
    """400 `slow_down` (RFC 8628 section 3.5): the device polls too fast, and its interval is raised."""

    code = "slow_down"
    message = "The device polls too fast. Wait 5 seconds longer between two polls from now on."


class AccessDenied(OAuthError):
    """400 `access_denied` (RFC 8628 section 3.5): the user has denied access, or has signed out before the device was."""

    code = ACCESS_DENIED
    message = "The user has denied access, or has taken the approval back."


class DeviceCodeExpired(OAuthError):
    """400 `expired_token` (RFC 8628 section 3.5)."""

    code = "expired_token"
    message = "The device code has expired. Start a new device authorization request."


class RejectedByAuthorization(OAuthError):
    """400 of another endpoint: the request is rejected with the error that the authorization endpoint has for it."""

    possible: ClassVar[Collection[str]]

    def __init__(self, problem: RequestRejected) -> None:
        super().__init__(problem.description)
        self.code = problem.error  # type: ignore[misc]  # a class variable of errors with one code

    @classmethod
    def codes(cls) -> Collection[str]:
        return cls.possible


class DeviceRequestRejected(RejectedByAuthorization):
    """400: a device authorization request with a scope or resource that the client may not have (RFC 8628 section 3.1)."""

    possible = ("invalid_scope", "invalid_target")
    message = "The device authorization request is invalid. `error` is that of the authorization endpoint."


class PushedRequestRejected(RejectedByAuthorization):
    """400: a pushed request is rejected (RFC 9126 section 2.3)."""

    possible = (
        "invalid_request",
        "invalid_request_object",
        "invalid_scope",
        "invalid_target",
        "request_not_supported",
        "unauthorized_client",
        "unsupported_response_type",
    )
    message = "The authorization request is invalid. `error` is that of the authorization endpoint."


class UserCodeUnknown(ApiError):
    """400 of a page: no device waits with this code."""

    code = "user_code_unknown"
    message = "This code is not valid. Check it, or get a new one on your device."

"""Django REST framework: authentication by access token, and a permission class for each permission."""

from typing import Any

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException, AuthenticationFailed
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.views import APIView

from identity_sdk.django import verifier
from identity_sdk.errors import RETRY_AFTER, AccessDenied
from identity_sdk.verification import Principal, require


class KeysUnavailable(APIException):
    """503: the keys of the issuer cannot be fetched."""

    status_code = 503
    default_detail = "The keys of the issuer cannot be fetched."
    default_code = "keys_unavailable"
    wait = RETRY_AFTER  # sent as Retry-After


class IdentityAuthentication(BaseAuthentication):
    """`request.user` is the principal of the access token. The settings are those of `identity_sdk.django`."""

    def authenticate(self, request: Request) -> tuple[Any, None] | None:
        authorization = request.headers.get("Authorization", "")
        if not _is_bearer(authorization):
            return None
        try:
            return verifier().authorize(authorization), None
        except AccessDenied as error:
            if error.status == 503:
                raise KeysUnavailable from error
            raise AuthenticationFailed(error.message, error.code) from error

    def authenticate_header(self, request: Request) -> str:
        is_bearer = _is_bearer(request.headers.get("Authorization", ""))
        return 'Bearer error="invalid_token"' if is_bearer else 'Bearer realm="api"'


def _is_bearer(authorization: str) -> bool:
    return authorization.lower().startswith("bearer ")


def require_permission(*permissions: str) -> type[BasePermission]:
    """Return a permission class that requires all of these permissions; none: any valid token."""

    class RequirePermission(IsAuthenticated):
        def has_permission(self, request: Request, view: APIView) -> bool:
            if not isinstance(request.user, Principal):
                return False
            try:
                require(request.user, *permissions)
            except AccessDenied as error:
                # Not raised, so that the class can be combined: `require_permission("a") | IsAdminUser`.
                self.message, self.code = error.message, error.code
                view.headers["WWW-Authenticate"] = error.challenge
                return False
            return True

    return RequirePermission


def require_any(*permissions: str) -> type[BasePermission]:
    """Return a permission class that requires at least one of these permissions."""

    class RequireAny(IsAuthenticated):
        message = f"The access token has none of the permissions {', '.join(permissions)}."
        code = "insufficient_scope"

        def has_permission(self, request: Request, view: APIView) -> bool:
            return isinstance(request.user, Principal) and not request.user.permissions.isdisjoint(permissions)

    return RequireAny

"""Authenticate requests by Bearer token (RFC 6750)."""

from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from identity_platform.api.errors import AccessTokenInvalid, NotSignedIn
from identity_platform.audit.origin import set_actor
from userflow.accounts.principals import Claims, Principal
from userflow.errors import EmailNotVerified, FactorRequired
from userflow.sessions.token_classes import InvalidToken, claims_of
from userflow.sessions.verify import SessionInactive, principal_of


def bearer_token(request: Request) -> str | None:
    """Return the token of the Authorization header, or None without the header.

    Raises NotSignedIn when the header has no Bearer token, AccessTokenInvalid when the token is malformed.
    """
    header = request.META.get("HTTP_AUTHORIZATION")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise NotSignedIn
    if " " in token:
        raise AccessTokenInvalid
    return token  # type: ignore[no-any-return]  # META is untyped


class BearerAuthentication(BaseAuthentication):
    """DRF authentication: `request.user` becomes a Principal, `request.auth` the claims."""

    def authenticate(self, request: Request) -> tuple[Principal, Claims] | None:
        token = bearer_token(request)
        if token is None:
            return None
        try:
            claims = claims_of(token)
            principal = principal_of(claims)
        except (InvalidToken, SessionInactive, ValueError) as problem:
            raise AccessTokenInvalid from problem
        set_actor(principal.kind, str(principal.id), principal.client_id, actor_tenant_id=principal.tenant_id)
        if not principal.meets_policy() and not _takes_any_level(request):
            raise EmailNotVerified if principal.must_verify_email else FactorRequired
        return principal, claims

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def _takes_any_level(request: Request) -> bool:
    """Whether the endpoint is also for sessions below the level that the policy in force asks for."""
    view = request.parser_context.get("view")
    contract = getattr(getattr(view, getattr(view, "action", None) or "", None), "contract", None)
    return contract is not None and contract.any_level

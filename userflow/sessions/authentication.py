"""Authenticate requests by access token: Bearer (RFC 6750), or bound to a key (RFC 9449) or certificate (RFC 8705)."""

from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from identity_platform.api.errors import AccessTokenInvalid, NotSignedIn
from identity_platform.audit.origin import set_actor
from userflow.accounts.principals import Claims, Principal
from userflow.errors import EmailNotVerified, FactorRequired
from userflow.oauth_errors import DpopNonceRequired, DpopProofInvalid, DpopRejected, DpopRejectedWithoutNonce
from userflow.sessions.sender_constraint import check_bound_token
from userflow.sessions.token_classes import InvalidToken, claims_of
from userflow.sessions.verify import SessionInactive, principal_of


def presented_token(request: HttpRequest | Request) -> tuple[str, str] | None:
    """Return the scheme (`bearer` or `dpop`) and the token of the Authorization header, or None without the header.

    Raises NotSignedIn when the header has no access token, AccessTokenInvalid when the token is malformed.
    """
    header: str | None = request.META.get("HTTP_AUTHORIZATION")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    if scheme.lower() not in ("bearer", "dpop") or not token:
        raise NotSignedIn
    if " " in token:
        raise AccessTokenInvalid
    return scheme.lower(), token


def check_binding(request: HttpRequest | Request, scheme: str, token: str, claims: Claims) -> None:
    """Require the proof or certificate of a bound token. Raises AccessTokenInvalid, DpopRejected (401), Unavailable,
    ValueError (an unknown claim `cnf`).
    """
    if scheme == "bearer" and "cnf" not in claims:
        return
    try:
        check_bound_token(request, token, claims, scheme=scheme)
    except DpopNonceRequired as problem:
        raise DpopRejectedWithoutNonce(problem) from problem
    except DpopProofInvalid as problem:
        raise DpopRejected(problem) from problem


class BearerAuthentication(BaseAuthentication):
    """DRF authentication by Bearer or DPoP: `request.user` becomes a Principal, `request.auth` the claims."""

    def authenticate(self, request: Request) -> tuple[Principal, Claims] | None:
        presented = presented_token(request)
        if presented is None:
            return None
        scheme, token = presented
        try:
            claims = claims_of(token)
            check_binding(request, scheme, token, claims)
            principal = self.read_principal(request, claims)
        except (InvalidToken, SessionInactive, ValueError) as problem:
            raise AccessTokenInvalid from problem
        set_actor(principal.kind, str(principal.id), principal.client_id, actor_tenant_id=principal.tenant_id)
        if not principal.meets_policy() and not _takes_any_level(request):
            raise EmailNotVerified if principal.must_verify_email else FactorRequired
        return principal, claims

    def read_principal(self, request: Request, claims: Claims) -> Principal:
        """Return the principal of the token as stored now. Raises as `principal_of`."""
        return principal_of(claims)

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def _takes_any_level(request: Request) -> bool:
    """Whether the endpoint is also for sessions below the level that the policy in force asks for."""
    view = request.parser_context.get("view")
    contract = getattr(getattr(view, getattr(view, "action", None) or "", None), "contract", None)
    return contract is not None and contract.any_level

"""Who may call an endpoint: by permission and by kind of principal. The default is nobody.

The kinds are re-exported, so that a view takes all it says about its callers from one place.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import UUID

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from identity_platform.api.errors import InsufficientScope, NotAllowed, NotSignedIn, ValidationFailed
from tenants import lookup
from tenants.errors import TenantMismatch, TenantRequired
from tenants.states import Purpose
from userflow.accounts.principals import ADMIN, CLIENT, END_USER, OPERATOR, Principal
from userflow.ids import FORM
from userflow.sessions.verify import tenant_of_call


class Nobody(BasePermission):
    """The default: an endpoint that forgot to say who may call it is closed."""

    def has_permission(self, request: Request, view: Any) -> bool:
        raise NotAllowed


class Anyone(BasePermission):
    """Public endpoints; where they look at a token, one that is sent names no foreign tenant."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if isinstance(request.user, Principal):
            reject_foreign_tenant(request.user, request, view)
        return True


class SignedIn(BasePermission):
    """Any valid access token."""

    def has_permission(self, request: Request, view: Any) -> bool:
        reject_foreign_tenant(principal_at(request), request, view)
        return True


@cache  # some views choose by action, and making a class costs more than asking it
def needs(permission: str, *kinds: str) -> type[BasePermission]:
    """A permission class: the caller holds `permission` and is one of `kinds` (admins, operators and clients if unsaid).

    End users act on themselves only, whatever a tenant calls its roles, so they are in only where an endpoint says so.
    """
    allowed = kinds or (OPERATOR, ADMIN, CLIENT)

    class Needs(BasePermission):
        def has_permission(self, request: Request, view: Any) -> bool:
            principal = principal_at(request)
            require(principal, permission, *allowed)
            reject_foreign_tenant(principal, request, view)
            return True

    Needs.__name__ = f"Needs_{permission.replace(':', '_')}"
    return Needs


def require(principal: Principal, permission: str, *kinds: str) -> None:
    """InsufficientScope unless the principal holds the permission and is of one of the kinds."""
    if not principal.may(permission):
        raise InsufficientScope(f"This call needs the permission {permission}.", scope=permission)
    if principal.kind not in (allowed := kinds or (OPERATOR, ADMIN, CLIENT)):
        # Whoever holds it and reads that it is needed looks for the fault in the wrong place.
        raise InsufficientScope(
            f"A token of kind {principal.kind} may not make this call: send one of {' or '.join(allowed)}."
        )


def reject_foreign_tenant(principal: Principal, request: Request, view: Any) -> None:
    """TenantMismatch when query or body name another tenant than the token's, also where the endpoint reads neither.

    Whoever writes a tenant down means it; an answer about another one would be taken for it. The body counts where the
    endpoint takes one, and what is no id is left to the endpoint.
    """
    if principal.tenant_id is None:
        return
    # Decoded names only: `tenant%5Fid` is the same member.
    stated: list[Any] = request.query_params.getlist("tenant_id") if request.META["QUERY_STRING"] else []
    contract = getattr(getattr(view, view.action or "", None), "contract", None)
    counts = getattr(view, "tenant_of_body_counts", True)
    if counts and contract is not None and contract.body is not None and isinstance(request.data, Mapping):
        stated = [*stated, request.data.get("tenant_id")]
    for value in stated:
        if isinstance(value, str) and FORM.fullmatch(value) and UUID(value) != principal.tenant_id:
            raise TenantMismatch(UUID(value))


def principal_at(request: Request) -> Principal:
    """The caller; NotSignedIn without a valid token."""
    principal = request.user
    if not isinstance(principal, Principal):
        raise NotSignedIn
    return principal


def reading(principal: Principal) -> Purpose:
    """What the caller enters a tenant for when it reads: an operator also inspects one that its own people cannot use."""
    return Purpose.INSPECT if principal.kind == OPERATOR else Purpose.READ


def editing_users(principal: Principal) -> Purpose:
    """Return what the caller enters a tenant for when it changes users: an operator may do so in a suspended tenant."""
    return Purpose.EDIT_USERS if principal.kind == OPERATOR else Purpose.WRITE


def tenant_at(request: Request, stated: UUID | None = None) -> UUID:
    """The tenant that the call means.

    Raises TenantMismatch (403), TenantRequired (400, an operator that names none), UnknownTenant (404, an operator
    that names one that is not there), ValidationFailed (400, a malformed X-Tenant-ID of an operator).
    """
    principal = principal_at(request)
    header = request.META.get("HTTP_X_TENANT_ID")
    try:
        tenant_id = tenant_of_call(principal, stated, header)
    except ValueError as problem:
        raise ValidationFailed(
            details={"X-Tenant-ID": ["Send the id of a tenant in its 36-character form."]}
        ) from problem
    if tenant_id is None:
        raise TenantRequired
    if principal.tenant_id is None:
        lookup.find(tenant_id)
    return tenant_id


__all__ = [
    "ADMIN",
    "CLIENT",
    "END_USER",
    "OPERATOR",
    "Anyone",
    "Nobody",
    "SignedIn",
    "editing_users",
    "needs",
    "principal_at",
    "reading",
    "require",
    "tenant_at",
]

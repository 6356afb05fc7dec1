"""Permission classes of endpoints: by permission and kind of principal. The default rejects every caller.

The kinds of principals are re-exported for views.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from uuid import UUID

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from identity_platform.api.errors import InsufficientScope, NotAllowed, NotSignedIn, ValidationFailed
from tenants.entering import lookup
from tenants.errors import TenantMismatch, TenantRequired
from tenants.states import Purpose
from userflow.accounts.principals import ADMIN, CLIENT, END_USER, OPERATOR, Principal
from userflow.ids import FORM
from userflow.sessions.verify import tenant_of_call

__all__ = ["ADMIN", "CLIENT", "END_USER", "OPERATOR"]

_KINDS = {OPERATOR: "operator", ADMIN: "admin", CLIENT: "client", END_USER: "end user"}


class NoCaller(BasePermission):
    """The default: an endpoint without a permission class rejects every caller."""

    def has_permission(self, request: Request, view: object) -> bool:
        raise NotAllowed


class Anyone(BasePermission):
    """Public endpoints. A token, if one is sent, must not conflict with the tenant in the request."""

    def has_permission(self, request: Request, view: object) -> bool:
        if isinstance(request.user, Principal):
            reject_foreign_tenant(request.user, request, view)
        return True


class SignedIn(BasePermission):
    """Any valid access token."""

    access = "Requires an access token."

    def has_permission(self, request: Request, view: object) -> bool:
        reject_foreign_tenant(principal_at(request), request, view)
        return True


@cache  # some views choose by action, and creating a class is expensive
def needs(permission: str, *kinds: str) -> type[BasePermission]:
    """Return a permission class: the caller holds `permission` and is of one of `kinds` (default: admins, operators, clients).

    End users act on themselves only, regardless of the tenant's roles, so an endpoint must name them.
    """
    allowed = kinds or (OPERATOR, ADMIN, CLIENT)

    class Needs(BasePermission):
        access = f"Requires `{permission}`{_as_one_of(allowed)}."

        def has_permission(self, request: Request, view: object) -> bool:
            principal = principal_at(request)
            require(principal, permission, *allowed)
            reject_foreign_tenant(principal, request, view)
            return True

    Needs.__name__ = f"Needs_{permission.replace(':', '_')}"
    return Needs


def _as_one_of(kinds: Sequence[str]) -> str:
    """Return which kinds of principals may call, if not the usual ones."""
    if {*kinds} >= {OPERATOR, ADMIN, CLIENT}:
        return ", which end users can hold too" if END_USER in kinds else ""
    return f" as {' or '.join(_KINDS[kind] for kind in kinds)}"


def require(principal: Principal, permission: str, *kinds: str) -> None:
    """Raise InsufficientScope unless the principal holds the permission and is of one of the kinds."""
    if not principal.may(permission):
        raise InsufficientScope(f"This call needs the permission {permission}.", scope=permission)
    if principal.kind not in (allowed := kinds or (OPERATOR, ADMIN, CLIENT)):
        # A caller that holds the permission needs another message.
        raise InsufficientScope(
            f"A token of kind {principal.kind} may not make this call: send one of {' or '.join(allowed)}."
        )


def reject_foreign_tenant(principal: Principal, request: Request, view: object) -> None:
    """Raise TenantMismatch when query or body name another tenant than the token, even if the endpoint reads neither.

    Otherwise the caller would take the response for one about the named tenant. The body counts if the endpoint has one; a
    value that is not an id is left to the endpoint.
    """
    if principal.tenant_id is None:
        return
    # Decoded names: `tenant%5Fid` is the same parameter.
    named_tenant_ids: list[object] = (
        [*request.query_params.getlist("tenant_id")] if request.META.get("QUERY_STRING") else []
    )
    contract = getattr(getattr(view, getattr(view, "action", None) or "", None), "contract", None)
    counts = getattr(view, "tenant_of_body_counts", True)
    if counts and contract is not None and contract.body is not None and isinstance(request.data, Mapping):
        named_tenant_ids = [*named_tenant_ids, request.data.get("tenant_id")]
    for value in named_tenant_ids:
        if isinstance(value, str) and FORM.fullmatch(value) and UUID(value) != principal.tenant_id:
            raise TenantMismatch(UUID(value))


def principal_at(request: Request) -> Principal:
    """Return the caller. Raises NotSignedIn without a valid token."""
    principal = request.user
    if not isinstance(principal, Principal):
        raise NotSignedIn
    return principal


def reading(principal: Principal) -> Purpose:
    """Return the purpose of a read: an operator may also inspect a tenant that its own users cannot use."""
    return Purpose.INSPECT if principal.kind == OPERATOR else Purpose.READ


def editing_users(principal: Principal) -> Purpose:
    """Return the purpose of a change of users: an operator may also make it in a suspended tenant."""
    return Purpose.EDIT_USERS if principal.kind == OPERATOR else Purpose.WRITE


def tenant_at(request: Request, requested_tenant_id: UUID | None = None) -> UUID:
    """Return the tenant of the call.

    Raises TenantMismatch (403), TenantRequired (400, an operator names none), UnknownTenant (404, an operator names one
    that does not exist), ValidationFailed (400, a malformed X-Tenant-ID of an operator).
    """
    principal = principal_at(request)
    header = request.META.get("HTTP_X_TENANT_ID")
    try:
        tenant_id = tenant_of_call(principal, requested_tenant_id, header)
    except ValueError as problem:
        raise ValidationFailed(
            details={"X-Tenant-ID": ["Send the id of a tenant in its 36-character form."]}
        ) from problem
    if tenant_id is None:
        raise TenantRequired
    if principal.tenant_id is None:
        lookup.find(tenant_id)
    return tenant_id


def tenant_or_platform_at(request: Request, requested_tenant_id: UUID | None = None) -> UUID | None:
    """Return the tenant of the call, or None for an operator who names none. Raises what `tenant_at` raises."""
    if (
        principal_at(request).tenant_id is None
        and requested_tenant_id is None
        and "HTTP_X_TENANT_ID" not in request.META
    ):
        return None
    return tenant_at(request, requested_tenant_id)

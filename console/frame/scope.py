"""Which tenant the console looks into. An operator chooses one and it stays chosen; a tenant admin has only its own."""

from urllib.parse import urlencode
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.urls import reverse

from console.frame.access import staff_at
from tenants.models import Tenant

CHOSEN = "console_tenant"
# The ids of the tenants that were chosen last, the newest first.
RECENT = "console_recent_tenants"
MOST_RECENT = 6


class NoTenantChosen(Exception):
    """The page shows something of a tenant, and the operator has chosen none: the chooser comes first."""


def chosen_tenant(request: HttpRequest) -> Tenant | None:
    """The tenant that the pages of people and services show, with its database; None while an operator has chosen none."""
    if hasattr(request, "console_tenant"):
        known: Tenant | None = request.console_tenant
        return known
    staff = staff_at(request)
    tenant_id = staff.user.tenant_id or request.session.get(CHOSEN)
    tenant = Tenant.objects.select_related("database__server").filter(pk=tenant_id).first() if tenant_id else None
    request.console_tenant = tenant  # type: ignore[attr-defined]  # remembered for this request
    return tenant


def tenant_at(request: HttpRequest) -> Tenant:
    """The chosen tenant; NoTenantChosen, which leads to the chooser and back, while there is none."""
    tenant = chosen_tenant(request)
    if tenant is None:
        raise NoTenantChosen
    return tenant


def to_the_chooser(request: HttpRequest) -> str:
    """Where a tenant is chosen, and from there back to the page that was asked for."""
    return f"{reverse('admin:choose_tenant')}?{urlencode({'next': request.get_full_path()})}"


def choose_tenant(request: HttpRequest, tenant_id: UUID | None) -> None:
    """Look into this tenant from now on, or with None into none. PermissionDenied for tenant admins, Http404 if unknown."""
    if not staff_at(request).is_operator:
        raise PermissionDenied
    if tenant_id is None:
        request.session.pop(CHOSEN, None)
    elif not Tenant.objects.filter(pk=tenant_id).exists():
        raise Http404
    else:
        chosen = str(tenant_id)
        before = [other for other in request.session.get(RECENT, []) if other != chosen]
        request.session[CHOSEN], request.session[RECENT] = chosen, [chosen, *before][:MOST_RECENT]
    if hasattr(request, "console_tenant"):
        del request.console_tenant


def may_see_tenant(request: HttpRequest, tenant_id: UUID | None) -> bool:
    """Whether something of this tenant (None: of the platform itself) may be shown at all."""
    own = staff_at(request).user.tenant_id
    return own is None or own == tenant_id

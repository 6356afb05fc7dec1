"""The chosen tenant and the tenant of the page.

An operator chooses a tenant for the session; for a tenant admin it is the own tenant. A page acts on at most one tenant,
the chosen one or the one that its path names, and the bar at the top shows that one and no other.
"""

from urllib.parse import urlencode
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from console.frame.access import staff_at
from console.frame.middleware import CONSOLE
from tenants.models import Tenant

CHOSEN = "console_tenant"
# The ids of the tenants that were chosen last, newest first.
RECENT = "console_recent_tenants"
MOST_RECENT = 6


class NoTenantChosen(Exception):
    """The page needs a tenant, and the operator has chosen none."""


def chosen_tenant(request: HttpRequest) -> Tenant | None:
    """Return the chosen tenant with its database; None if an operator has chosen none."""
    if hasattr(request, "console_tenant"):
        known: Tenant | None = request.console_tenant
        return known
    staff = staff_at(request)
    tenant_id = staff.user.tenant_id or request.session.get(CHOSEN)
    tenant = Tenant.objects.select_related("database__server").filter(pk=tenant_id).first() if tenant_id else None
    request.console_tenant = tenant  # type: ignore[attr-defined]  # remembered for this request
    return tenant


def tenant_at(request: HttpRequest) -> Tenant:
    """Return the chosen tenant, which the page then acts on.

    Raises NoTenantChosen, which redirects to the chooser and back.
    """
    tenant = chosen_tenant(request)
    if tenant is None:
        raise NoTenantChosen
    act_on(request, tenant)
    return tenant


def act_on(request: HttpRequest, tenant: Tenant) -> None:
    """Note the tenant that the page acts on, for the bar. Raises RuntimeError if the page already acts on another."""
    known: Tenant | None = getattr(request, "page_tenant", None)
    if known is not None and known.pk != tenant.pk:
        raise RuntimeError(f"This page acts on {known.slug} and on {tenant.slug}.")
    chosen = chosen_tenant(request)
    # The chosen one is read with its database, whose state the bar shows.
    request.page_tenant = chosen if chosen == tenant else tenant  # type: ignore[attr-defined]  # remembered for this request


def page_tenant(request: HttpRequest) -> Tenant | None:
    """Return the tenant that the page acts on: None on the platform's pages. All pages of a tenant admin are the tenant's."""
    known: Tenant | None = getattr(request, "page_tenant", None)
    if known is None and not staff_at(request).is_operator:
        return chosen_tenant(request)
    return known


def to_the_chooser(request: HttpRequest) -> str:
    """Return the path of the chooser, which returns to the requested page."""
    return f"{reverse('admin:choose_tenant')}?{urlencode({'next': request.get_full_path()})}"


def console_path(request: HttpRequest, path: str | None) -> str:
    """Return the path if it is one of the console on this host, else an empty string."""
    if not path or "\\" in path or not path.startswith(CONSOLE):
        return ""
    return path if url_has_allowed_host_and_scheme(path, allowed_hosts={request.get_host()}) else ""


def choose_tenant(request: HttpRequest, tenant_id: UUID | None) -> None:
    """Open this tenant, or with None exit the open one. Raises PermissionDenied for tenant admins, Http404 if unknown."""
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

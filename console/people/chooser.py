"""Choosing the tenant to open, and exiting it."""

from typing import Final

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from console.frame.access import require
from console.frame.scope import RECENT, choose_tenant, chosen_tenant
from tenants.errors import UnknownTenant
from tenants.models import Tenant
from tenants.states import State
from userflow.ids import id_or

SHOWN: Final = 25
GONE: Final = (State.DELETED, State.DELETING)


class Search(forms.Form):
    """The search words."""

    q = forms.CharField(max_length=255, required=False, strip=True)


def chooser(request: HttpRequest) -> HttpResponse:
    """Find a tenant by name or slug and open it; `?tenant=` proposes one. Only a POST opens."""
    if not require(request, "tenants:read").is_operator:
        raise PermissionDenied(_("You can open your own tenant only."))
    if request.method == "POST":
        return _choose(request)
    form = Search(request.GET)
    wanted = form.cleaned_data["q"] if form.is_valid() else ""
    proposed = request.GET.get("tenant")
    found = _found(wanted) if wanted else []
    recent = _recent(request)
    context = {
        **admin.site.each_context(request),
        "title": _("Choose a tenant"),
        "form": form,
        "q": wanted,
        "found": found[:SHOWN],
        "more": len(found) > SHOWN,
        "proposed": _one(proposed) if proposed else None,
        "recent": recent,
        # The first visit offers tenants to choose from.
        "newest": [] if wanted or recent else _newest(),
        "next": _way_back(request, request.GET.get("next", "")),
        "chosen": chosen_tenant(request),
    }
    return TemplateResponse(request, "console/people/chooser.html", context)


def _choose(request: HttpRequest) -> HttpResponse:
    stated = request.POST.get("tenant", "")
    if not stated:
        choose_tenant(request, None)
        return HttpResponseRedirect(reverse("admin:choose_tenant"))
    tenant = _one(stated)
    choose_tenant(request, tenant.pk)
    return HttpResponseRedirect(_way_back(request, request.POST.get("next", "")) or first_page(request))


def first_page(request: HttpRequest) -> str:
    """Return the first list of a tenant that the user may open. Raises PermissionDenied."""
    from console.people.navigation import may_open

    for page in may_open(request):
        return str(page)
    raise PermissionDenied


def _found(wanted: str) -> list[Tenant]:
    matching = Tenant.objects.filter(Q(slug__icontains=wanted) | Q(name__icontains=wanted))
    rows = matching.exclude(database__status__in=GONE).select_related("database").order_by("slug")
    # Slugs that begin with the words come first.
    return sorted(rows[: SHOWN + 1], key=lambda tenant: (not tenant.slug.startswith(wanted.lower()), tenant.slug))


def _one(stated: str) -> Tenant:
    try:
        tenant_id = id_or(stated, UnknownTenant)
    except UnknownTenant as problem:
        raise Http404 from problem
    tenant = Tenant.objects.select_related("database").filter(pk=tenant_id).first()
    if tenant is None or tenant.database.status in GONE:
        raise Http404
    return tenant


def _recent(request: HttpRequest) -> list[Tenant]:
    ids = request.session.get(RECENT, [])
    rows = Tenant.objects.select_related("database").exclude(database__status__in=GONE).filter(pk__in=ids)
    by_id = {str(tenant.pk): tenant for tenant in rows}
    return [by_id[key] for key in ids if key in by_id]


def _newest() -> list[Tenant]:
    rows = Tenant.objects.select_related("database").exclude(database__status__in=GONE)
    return list(rows.order_by("-created_at", "id")[:SHOWN])


def _way_back(request: HttpRequest, path: str) -> str:
    """Return the page to go to, if it is a page of the console."""
    own = url_has_allowed_host_and_scheme(path, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return path if own and path.startswith(reverse("admin:index")) else ""

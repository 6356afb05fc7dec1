"""Choosing the tenant to open, and exiting it."""

from typing import Final

from django import forms
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _

from console.frame.access import require
from console.frame.lists import uuid_or_none
from console.frame.navigation import AUDIT_LOG, OPEN_TENANT, permitted
from console.frame.records import render_page
from console.frame.scope import RECENT, choose_tenant, chosen_tenant, console_path
from console.frame.sent_forms import processed_each_time
from tenants.models import Tenant
from tenants.states import State

SHOWN: Final = 25
GONE: Final = (State.DELETED, State.DELETING)


class Search(forms.Form):
    q = forms.CharField(max_length=255, required=False, strip=True)


@processed_each_time
def chooser(request: HttpRequest) -> HttpResponse:
    """Find a tenant by name or slug and open it; `?tenant=` proposes one. Only a POST opens."""
    if not require(request, "tenants:read").is_operator:
        raise PermissionDenied(_("You can open your own tenant only."))
    if request.method == "POST":
        return _choose(request)
    form = Search(request.GET)
    words = form.cleaned_data["q"] if form.is_valid() else ""
    proposed = request.GET.get("tenant")
    tenants = _matching_tenants(words) if words else []
    recent = _recent(request)
    return render_page(
        request,
        "console/people/chooser.html",
        _("Choose a tenant"),
        {
            "form": form,
            "q": words,
            "found": tenants[:SHOWN],
            "more": len(tenants) > SHOWN,
            "proposed": _openable_tenant(proposed) if proposed else None,
            "recent": recent,
            # The first visit offers tenants to choose from.
            "newest": [] if words or recent else _openable().order_by("-created_at", "id")[:SHOWN],
            "next": console_path(request, request.GET.get("next")),
            "chosen": chosen_tenant(request),
        },
    )


def _choose(request: HttpRequest) -> HttpResponse:
    tenant_id = request.POST.get("tenant", "")
    if not tenant_id:
        choose_tenant(request, None)
        return HttpResponseRedirect(reverse("admin:choose_tenant"))
    tenant = _openable_tenant(tenant_id)
    choose_tenant(request, tenant.pk)
    return HttpResponseRedirect(console_path(request, request.POST.get("next")) or first_page(request))


def first_page(request: HttpRequest) -> str:
    """Return the first list of a tenant that the user may open. Raises PermissionDenied."""
    if pages := permitted(require(request), OPEN_TENANT + AUDIT_LOG):
        return reverse(f"admin:{pages[0][2]}")
    raise PermissionDenied


def _openable() -> QuerySet[Tenant]:
    return Tenant.objects.select_related("database").exclude(database__status__in=GONE)


def _matching_tenants(words: str) -> list[Tenant]:
    rows = _openable().filter(Q(slug__icontains=words) | Q(name__icontains=words)).order_by("slug")
    # Slugs that begin with the words come first.
    return sorted(rows[: SHOWN + 1], key=lambda tenant: (not tenant.slug.startswith(words.lower()), tenant.slug))


def _openable_tenant(tenant_id: str) -> Tenant:
    # A malformed id matches no tenant.
    return get_object_or_404(_openable(), pk=uuid_or_none(tenant_id))


def _recent(request: HttpRequest) -> list[Tenant]:
    ids = request.session.get(RECENT, [])
    by_id = {str(tenant.pk): tenant for tenant in _openable().filter(pk__in=ids)}
    return [by_id[key] for key in ids if key in by_id]

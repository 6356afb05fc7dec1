"""The page of the search, and the results inside the dialog that Ctrl-K opens on every page."""

from dataclasses import dataclass
from typing import Final

from django import forms
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.find.actions import Kind, Match, SearchResults, find_anything, searchable
from console.frame.access import Context, Staff, staff_at
from console.frame.navigation import OPEN_TENANT, permitted
from console.frame.records import Text, render_page
from console.frame.scope import chosen_tenant
from tenants.models import Tenant

_LABELS: Final[dict[Kind, Text]] = {
    Kind.TENANT: gettext_lazy("Tenant"),
    Kind.END_USER: gettext_lazy("End user"),
    Kind.ADMIN_USER: gettext_lazy("Admin user"),
    Kind.CLIENT: gettext_lazy("Client"),
    Kind.SERVICE: gettext_lazy("Service"),
}
_NAMES: Final[dict[Kind, Text]] = {
    Kind.TENANT: gettext_lazy("tenants"),
    Kind.ADMIN_USER: gettext_lazy("admin users"),
    Kind.CLIENT: gettext_lazy("clients"),
    Kind.SERVICE: gettext_lazy("services"),
}
_PAGES: Final = {
    Kind.TENANT: "admin:tenants_tenant_change",
    Kind.END_USER: "admin:person",
    Kind.ADMIN_USER: "admin:userflow_adminuser_change",
    Kind.CLIENT: "admin:userflow_client_change",
    Kind.SERVICE: "admin:registry_service_change",
}


class SearchForm(forms.Form):
    q = forms.CharField(max_length=255, strip=True, required=False)


@dataclass(frozen=True, slots=True)
class LinkedMatch:
    """A result as it is shown: a link, or where another tenant has to be opened first, a button that opens it."""

    label: Text
    match: Match
    link: str
    opens: Tenant | None = None


def find(request: HttpRequest) -> HttpResponse:
    """Search on a POST, so that no address is in a URL, which browsers and proxies store."""
    staff = staff_at(request)
    form = SearchForm(request.POST if request.method == "POST" else None)
    words = form.cleaned_data["q"] if form.is_valid() else ""
    search_result = find_anything(by=staff.principal, words=words) if words else SearchResults([], more=False)
    kinds = searchable(staff.principal)
    context: Context = {
        "q": words,
        "results": [_result(match, request, staff) for match in search_result.matches],
        "more": search_result.more,
        "by_name": ", ".join(str(_NAMES[kind]) for kind in kinds if kind is not Kind.END_USER),
        "people": Kind.END_USER in kinds,
        "choose": staff.is_operator and staff.may("tenants:read"),
    }
    if "HX-Request" in request.headers:
        return TemplateResponse(request, "console/find/results.html", context)
    return render_page(request, "console/find/page.html", _("Find"), context)


def _result(match: Match, request: HttpRequest, staff: Staff) -> LinkedMatch:
    link = reverse(_PAGES[match.kind], args=[match.key])
    label = _LABELS[match.kind]
    if match.tenant is None or match.kind is Kind.ADMIN_USER or not staff.is_operator:
        return LinkedMatch(label, match, link)
    if match.kind is Kind.TENANT:
        # The first of its lists, or its record for an operator who may see none of them.
        return LinkedMatch(label, match, "" if permitted(staff, OPEN_TENANT) else link, match.tenant)
    chosen = chosen_tenant(request)
    is_open = chosen is not None and chosen.pk == match.tenant.pk
    return LinkedMatch(label, match, link, None if is_open else match.tenant)

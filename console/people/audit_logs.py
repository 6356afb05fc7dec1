"""The audit trail of the chosen tenant."""

from typing import Final
from urllib.parse import urlencode

from django import forms as django_forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.widgets import UnfoldAdminTextInputWidget

from console.frame.access import staff_at
from console.frame.forms import Fields
from console.frame.tenant_pages import reading_purpose, tenant_page
from console.people.end_user_record import with_actors
from identity_platform.audit.writer import record_for_tenant
from tenants.models import Tenant
from userflow.audit.actions import TENANT, Filters, page_of_events

ON_A_PAGE: Final = 50


def _moment() -> UnfoldAdminTextInputWidget:
    return UnfoldAdminTextInputWidget(attrs={"type": "datetime-local"})


class SearchForm(django_forms.Form):
    """What to look for."""

    actor = django_forms.CharField(
        label=gettext_lazy("Actor's id"), max_length=64, required=False, widget=UnfoldAdminTextInputWidget()
    )
    action = django_forms.CharField(
        label=gettext_lazy("Action, such as signin.refused"),
        max_length=64,
        required=False,
        widget=UnfoldAdminTextInputWidget(),
    )
    target = django_forms.CharField(
        label=gettext_lazy("Target's id"), max_length=64, required=False, widget=UnfoldAdminTextInputWidget()
    )
    since = django_forms.DateTimeField(label=gettext_lazy("From (UTC)"), required=False, widget=_moment())
    until = django_forms.DateTimeField(label=gettext_lazy("Until (UTC)"), required=False, widget=_moment())
    before = django_forms.IntegerField(
        required=False, min_value=1, max_value=2**63 - 1, widget=django_forms.HiddenInput()
    )


@tenant_page("audit:read")
def listed(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Events that match the filters, newest first. Every page costs the same."""
    form = SearchForm(request.GET)
    asked: Fields = form.cleaned_data if form.is_valid() else {}
    before = asked.pop("before", None)
    filters = {name: value for name, value in asked.items() if value}
    record_for_tenant("audit.viewed", details={"console": True, "filters": sorted(filters)})
    rows, following = page_of_events(
        tenant_id=tenant.pk,
        trail=TENANT,
        limit=ON_A_PAGE,
        filters=Filters(**filters),
        before=before,
        purpose=reading_purpose(request),
    )
    kept = {name: request.GET[name] for name in filters}
    context = {
        **admin.site.each_context(request),
        "title": _("Audit trail"),
        "form": form,
        "filtered": bool(filters),
        "events": with_actors(rows, staff_at(request)),
        "first": before is None,
        "next": urlencode({**kept, "before": following}) if following else "",
        "newest": urlencode(kept),
        "sees_people": staff_at(request).may("endusers:read"),
        "tenant": tenant,
    }
    return TemplateResponse(request, "console/people/audit_logs.html", context)

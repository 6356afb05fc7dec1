from typing import Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from console.frame.access import staff_at
from console.frame.forms import EventSearch
from console.frame.records import render_page
from console.frame.tenant_pages import reading_purpose, tenant_page
from console.people.end_user import with_actors
from identity_platform.audit.writer import record_for_tenant
from tenants.models import Tenant
from userflow.audit.actions import TENANT, page_of_events

ON_A_PAGE: Final = 50


@tenant_page("audit:read")
def listed(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Events that match the filters, newest first. Every page costs the same."""
    form = EventSearch(request.GET)
    asked = form.asked() if form.is_valid() else {}
    record_for_tenant("audit.viewed", details={"console": True, "filters": sorted(asked)})
    before = form.cleaned_data.get("before")
    rows, following = page_of_events(
        tenant_id=tenant.pk,
        trail=TENANT,
        limit=ON_A_PAGE,
        filters=form.filters(),
        before=before,
        purpose=reading_purpose(request),
    )
    return render_page(
        request,
        "console/people/audit_logs.html",
        _("Audit log"),
        {
            "form": form,
            "filtered": bool(asked),
            "events": with_actors(rows, staff_at(request)),
            "first": before is None,
            "next": urlencode({**asked, "before": following}) if following else "",
            "newest": urlencode(asked),
            "sees_people": staff_at(request).may("endusers:read"),
            "tenant": tenant,
        },
    )

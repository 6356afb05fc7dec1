"""The sidebar's links to tenants and jobs."""

from django.http import HttpRequest
from django.urls import reverse_lazy
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context, staff_or_none
from console.tenants.pages import may_look


def tenants_and_jobs(request: HttpRequest) -> list[Context]:
    """Return the links for unfold's sidebar."""
    staff = staff_or_none(request)
    # The sign-in pages build the sidebar's context too, before anyone is signed in.
    if staff is None or not may_look(staff):
        return []
    lines = [{"title": _("Tenants"), "icon": "domain", "link": reverse_lazy("admin:tenants_tenant_changelist")}]
    if staff.is_operator:
        jobs = reverse_lazy("admin:console_job_changelist")
        lines.append({"title": _("Jobs"), "icon": "deployed_code_history", "link": jobs})
    return lines

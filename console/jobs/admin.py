"""Jobs in the console: the list, and the page of one, which follows it while it runs."""

from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import display

from console.frame.access import must_grant_tenant_admin, require, staff_at
from console.frame.confirm import confirmed
from console.frame.lists import ConsoleModelAdmin, uuid_or_none
from console.jobs.actions import run_job_again
from console.jobs.models import DONE, FAILED, INTERRUPTED, RUNNING, WAITING, Job
from console.metrics.tables import ago
from console.tenants import job_kinds
from console.tenants.job_kinds import KIND_NAMES
from tenants.models import Tenant
from tenants.states import State
from userflow.sessions.assurance import Action

STATE_NAMES = {
    WAITING: gettext_lazy("waiting"),
    RUNNING: gettext_lazy("running"),
    DONE: gettext_lazy("done"),
    FAILED: gettext_lazy("failed"),
    INTERRUPTED: gettext_lazy("interrupted"),
}
# What a kind of job does that is in the action table.
_ACTIONS = {job_kinds.PROVISION: Action.GRANT_ROLES, job_kinds.DELETE: Action.CHANGE_TENANT_STATE}
STATE_COLOURS = {RUNNING: "info", DONE: "success", FAILED: "danger", INTERRUPTED: "warning"}


class JobAdmin(ConsoleModelAdmin):
    """What staff began and what became of it; operators only."""

    view_permission = "tenants:read"
    operators_only = True
    of_tenant = "tenant_id"
    list_display = ("shown_kind", "shown_about", "shown_state", "begun_by", "created_at")
    ordering = ("-created_at", "pk")
    list_select_related = ("begun_by",)
    list_per_page = 25
    list_title = gettext_lazy("Jobs")
    empty_title = gettext_lazy("No jobs")
    empty_text = gettext_lazy("Nothing long has been begun here: the page of a tenant offers what can be done to it.")

    def get_urls(self) -> list[URLPattern]:
        own = [
            path("<str:job_id>/state/", self.admin_site.admin_view(self.state_view), name="console_job_state"),
            path("<str:job_id>/again/", self.admin_site.admin_view(self.again_view), name="console_job_again"),
        ]
        return own + super().get_urls()

    @display(description=gettext_lazy("What"))  # type: ignore[untyped-decorator]  # unfold has no types
    def shown_kind(self, job: Job) -> str:
        return str(KIND_NAMES.get(job.kind, job.kind))

    @display(description=gettext_lazy("Tenant"))  # type: ignore[untyped-decorator]  # unfold has no types
    def shown_about(self, job: Job) -> str:
        return str(job.params.get("slug") or job.tenant_id or "–")

    @display(  # type: ignore[untyped-decorator]  # unfold has no types
        description=gettext_lazy("State"),
        label={state: STATE_COLOURS.get(state, "") for state in STATE_NAMES},
    )
    def shown_state(self, job: Job) -> tuple[str, str]:
        return job.status, str(STATE_NAMES[job.status])

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page of one job."""
        return TemplateResponse(request, "console/tenants/job.html", self._about(request, object_id))

    def state_view(self, request: HttpRequest, job_id: str) -> HttpResponse:
        """The part of the page that is asked for again and again while the job runs."""
        return TemplateResponse(request, "console/tenants/job_state.html", self._about(request, job_id))

    def again_view(self, request: HttpRequest, job_id: str) -> HttpResponse:
        """Run a job again that failed or was interrupted."""
        require(request, "tenants:write")
        job = self._job(request, job_id)
        if job.kind == job_kinds.PROVISION:
            must_grant_tenant_admin(request)
        page = reverse("admin:console_job_change", args=[job.pk])
        return confirmed(
            request,
            title=_("Run again: %(what)s") % {"what": self.shown_kind(job)},
            text=_("The job goes on from the step it reached: every step can be run again."),
            back=page,
            action=_ACTIONS.get(job.kind),
            act=lambda _data: self._again(request, job),
            submit=_("Run again"),
            dangerous=job.kind == job_kinds.DELETE,
            shown=lambda request: HttpResponseRedirect(page),
        )

    def _again(self, request: HttpRequest, job: Job) -> str:
        run_job_again(job_id=job.pk, by=staff_at(request).user)
        return _("The job runs again.")

    def _job(self, request: HttpRequest, text: str) -> Job:
        if not self.has_view_permission(request):
            raise PermissionDenied
        job_id: UUID | None = uuid_or_none(text)
        job = Job.objects.select_related("begun_by").filter(pk=job_id).first() if job_id else None
        if job is None:
            raise Http404
        return job

    def _about(self, request: HttpRequest, text: str) -> dict[str, Any]:
        job = self._job(request, text)
        named = Tenant.objects.filter(pk=job.tenant_id) if job.tenant_id else Tenant.objects.none()
        tenant = named.exclude(database__status=State.DELETED).first()
        state = job.status
        return {
            **self.admin_site.each_context(request),
            "title": f"{self.shown_kind(job)}{f': {tenant.slug}' if tenant else ''}",
            "job": job,
            "state": state,
            "state_name": STATE_NAMES[state],
            "begun": ago(job.created_at),
            "colour": STATE_COLOURS.get(state, ""),
            "tenant": tenant,
            "may_again": state in (FAILED, INTERRUPTED) and staff_at(request).may("tenants:write"),
        }

"""The list of jobs, and the page of a job, which shows its progress."""

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context, must_grant_tenant_admin, staff_at
from console.frame.confirm import ConfirmView
from console.frame.labels import state as state_label
from console.frame.lists import ConsoleModelAdmin, column, uuid_or_none
from console.frame.records import NOTHING
from console.jobs.actions import run_job_again
from console.jobs.models import DONE, FAILED, INTERRUPTED, RUNNING, WAITING, Job
from console.metrics.tables import ago
from console.tenants import job_kinds
from console.tenants.job_kinds import KIND_NAMES
from identity_platform import task_queue
from identity_platform.api.views import Arguments
from tenants.models import Tenant
from tenants.states import State
from userflow.sessions.assurance import Action

# The rows of the assurance table for kinds of jobs.
_ACTIONS = {job_kinds.PROVISION: Action.GRANT_ROLES, job_kinds.DELETE: Action.CHANGE_TENANT_STATE}
STATE_COLOURS = {WAITING: "", RUNNING: "info", DONE: "success", FAILED: "danger", INTERRUPTED: "warning"}


def find_job(text: str) -> Job:
    """Return the job of this id. Raises Http404."""
    job_id = uuid_or_none(text)
    job = Job.objects.select_related("begun_by").filter(pk=job_id).first() if job_id else None
    if job is None:
        raise Http404
    return job


def name_of(job: Job) -> str:
    return str(KIND_NAMES.get(job.kind, job.kind))


def _shown_state(job: Job) -> tuple[str, str]:
    state = job.read_status()
    return state, state_label(state)


class RunAgain(ConfirmView):
    permissions = ("tenants:read", "tenants:write")
    operators_only = True
    title = _("Run again: %(kind)s")
    text = _("The job continues from the step it reached. Every step can be repeated safely.")
    submit = _("Run again")

    call = staticmethod(run_job_again)
    done = _("The job runs again.")
    job: Job

    def load(self) -> None:
        self.job = find_job(self.kwargs["job_id"])
        if self.job.kind == job_kinds.PROVISION:
            must_grant_tenant_admin(self.request)
        self.action = _ACTIONS.get(self.job.kind)
        self.dangerous = self.job.kind == job_kinds.DELETE

    def names(self) -> Context:
        return {"kind": name_of(self.job)}

    def arguments(self) -> Arguments:
        return {"job_id": self.job.pk, "by": self.staff.user}

    def get_back_url(self) -> str:
        return reverse("admin:console_job_change", args=[self.job.pk])


@admin.register(Job)
class JobAdmin(ConsoleModelAdmin):
    view_permission = "tenants:read"
    operators_only = True
    of_tenant = "tenant_id"
    list_display = ("shown_kind", "shown_about", "shown_state", "begun_by", "created_at")
    ordering = ("-created_at", "pk")
    list_select_related = ("begun_by",)
    list_per_page = 25
    list_title = _("Jobs")
    empty_title = _("No jobs")
    empty_text = _("No job has been started. The page of a tenant has the operations that run as jobs.")

    def get_urls(self) -> list[URLPattern]:
        own = [
            path("<str:job_id>/state/", self.admin_site.admin_view(self.state_view), name="console_job_state"),
            path("<str:job_id>/again/", self.admin_site.admin_view(RunAgain.as_view()), name="console_job_again"),
        ]
        return own + super().get_urls()

    shown_kind = column(_("Kind"), name_of)
    shown_about = column(_("Tenant"), lambda job: str(job.params.get("slug") or job.tenant_id or NOTHING))
    shown_state = column(_("State"), _shown_state, badges=STATE_COLOURS)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Context | None = None
    ) -> HttpResponse:
        return TemplateResponse(request, "console/tenants/job.html", self._about(request, object_id))

    def state_view(self, request: HttpRequest, job_id: str) -> HttpResponse:
        """The part of the page that is polled while the job runs."""
        return TemplateResponse(request, "console/tenants/job_state.html", self._about(request, job_id))

    def _about(self, request: HttpRequest, text: str) -> Context:
        if not self.has_view_permission(request):
            raise PermissionDenied
        job = find_job(text)
        # Read once: the job may end while the page is written, which then still asks for the next state.
        state = job.read_status()
        named = Tenant.objects.filter(pk=job.tenant_id) if job.tenant_id else Tenant.objects.none()
        tenant = named.exclude(database__status=State.DELETED).first()
        return {
            **self.admin_site.each_context(request),
            "title": f"{name_of(job)}{f': {tenant.slug}' if tenant else ''}",
            "job": job,
            "state": state,
            "is_over": state not in Job.LIVING,
            "state_name": state_label(state),
            "has_workers": task_queue.living_workers().exists(),
            "begun": ago(job.created_at),
            "colour": STATE_COLOURS[state],
            "tenant": tenant,
            "may_again": state in (FAILED, INTERRUPTED) and staff_at(request).may("tenants:write"),
        }

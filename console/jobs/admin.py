"""The list of jobs, and the page of a job, which shows its progress."""

from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context, must_grant_tenant_admin, staff_at
from console.frame.confirm import RowView, TypedName
from console.frame.labels import STATES, labelled
from console.frame.labels import state as state_label
from console.frame.lists import ChoiceFilter, ConsoleModelAdmin, column
from console.frame.records import NOTHING, render_page
from console.frame.scope import act_on
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
_ACTIONS = {
    job_kinds.PROVISION: Action.GRANT_ROLES,
    **dict.fromkeys((job_kinds.DELETE, job_kinds.MOVE, job_kinds.RESTORE), Action.CHANGE_TENANT_STATE),
}
_DANGEROUS = (job_kinds.DELETE, job_kinds.RESTORE)
STATE_COLOURS = {WAITING: "", RUNNING: "info", DONE: "success", FAILED: "danger", INTERRUPTED: "warning"}


def find_job(job_id: UUID) -> Job:
    """Return the job of this id. Raises Http404."""
    return get_object_or_404(Job.objects.select_related("begun_by"), pk=job_id)


def name_of(job: Job) -> str:
    return str(KIND_NAMES.get(job.kind, job.kind))


def show(request: HttpRequest, job_id: UUID, template: str = "console/tenants/job.html") -> HttpResponse:
    staff = staff_at(request)
    if not staff.is_operator or not staff.may("tenants:read"):
        raise PermissionDenied
    job = find_job(job_id)
    # Read once: the job may end while the page is written, which then still asks for the next state.
    state = job.read_status()
    tenant = _tenant_of(request, job)
    context: Context = {
        "job": job,
        "state": state,
        "is_over": state not in Job.LIVING,
        "state_name": state_label(state),
        "has_workers": task_queue.living_workers().exists(),
        "begun": ago(job.created_at),
        "colour": STATE_COLOURS[state],
        "tenant": tenant,
        "may_again": state in (FAILED, INTERRUPTED) and staff.may("tenants:write"),
    }
    return render_page(request, template, f"{name_of(job)}{f': {tenant.slug}' if tenant else ''}", context)


def _tenant_of(request: HttpRequest, job: Job) -> Tenant | None:
    """Return the tenant that the job and its page act on, None if there is none any more."""
    tenants = (
        Tenant.objects.select_related("database").filter(pk=job.tenant_id) if job.tenant_id else Tenant.objects.none()
    )
    tenant = tenants.exclude(database__status=State.DELETED).first()
    if tenant is not None:
        act_on(request, tenant)
    return tenant


def show_state(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Return the part of the page that is polled while the job runs."""
    return show(request, job_id, template="console/tenants/job_state.html")


class RunAgain(RowView[Job]):
    permissions = ("tenants:read", "tenants:write")
    operators_only = True
    title = _("Run again: %(kind)s")
    text = _("The job continues from the step it reached. Every step can be repeated safely.")
    submit = _("Run again")

    call = staticmethod(run_job_again)
    done = _("The job runs again.")
    page = "admin:console_job_change"
    key = "job_id"
    # What must be typed, if anything.
    typed = ""

    def find(self) -> Job:
        return find_job(self.kwargs["job_id"])

    def load(self) -> None:
        super().load()
        tenant = _tenant_of(self.request, self.row)
        if self.row.kind == job_kinds.PROVISION:
            must_grant_tenant_admin(self.request)
        self.action = _ACTIONS.get(self.row.kind)
        self.dangerous = self.row.kind in _DANGEROUS
        if tenant is not None and self.row.kind == job_kinds.RESTORE and self.row.params["mode"] == job_kinds.FOR_REAL:
            # It may have done nothing yet, a long time ago.
            self.typed, self.form_class = tenant.slug, TypedName
            self.text = _(
                "The restore begins again: all changes since the backup are lost, and all users sign in again."
            )

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), **({"confirmation_text": self.typed} if self.typed else {})}

    def row_name(self) -> str:
        return name_of(self.row)

    def names(self) -> Context:
        return {"kind": self.row_name()}

    def arguments(self) -> Arguments:
        return {"job_id": self.row.pk, "by": self.staff.user}


class JobState(ChoiceFilter):
    title = _("state")
    parameter_name = "state"
    options = (("unsuccessful", _("failed lately or interrupted")), (DONE, STATES[DONE]))

    def matching(self, rows: QuerySet[Model], value: str) -> QuerySet[Model]:
        return rows.filter(Q(state=DONE) if value == DONE else Job.unsuccessful(now()))


@admin.register(Job)
class JobAdmin(ConsoleModelAdmin):
    view_permission = "tenants:read"
    operators_only = True
    of_tenant = "tenant_id"
    sortable_by = None
    list_display = ("shown_kind", "shown_about", "shown_state", "begun_by", "created_at")
    ordering = ("-created_at", "pk")
    list_select_related = ("begun_by",)
    list_filter = (JobState,)
    list_per_page = 25
    list_title = _("Jobs")
    empty_title = _("No jobs")
    empty_text = _("No job has been started. The page of a tenant has the operations that run as jobs.")

    key = "job_id"
    show = staticmethod(show)

    shown_kind = column(_("Kind"), name_of)
    shown_about = column(_("Tenant"), lambda job: str(job.params.get("slug") or job.tenant_id or NOTHING))
    shown_state = column(_("State"), lambda job: labelled(job.read_status()), badges=STATE_COLOURS)

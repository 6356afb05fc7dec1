"""Pages that change a tenant: each asks, then calls the action that the command of the same name calls."""

from typing import ClassVar, cast

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.forms import Form
from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context, must_grant_tenant_admin, needed
from console.frame.confirm import ConfirmView, EditView, RowView, TypedName
from console.frame.forms import Reason
from console.frame.records import Table, Text
from console.jobs.actions import begin_job
from console.jobs.models import Job
from console.tenants import job_kinds
from console.tenants.forms import DeletionForm, MoveForm, ProvisionForm, RestoreForm, SettingsForm, SlugForm
from console.tenants.labels import setting_label
from console.tenants.pages import may_change_settings, tenant_at
from identity_platform.api.errors import ValidationFailed
from identity_platform.api.views import Arguments
from tenants.addresses.issuers import issuer_of
from tenants.entering import lookup
from tenants.errors import RelyingPartyTaken
from tenants.models import DatabaseServer, Tenant
from tenants.settings.declarations import SETTINGS
from tenants.settings.reserved_claims import is_issued
from tenants.settings.values import names_in
from userflow.sessions.assurance import Action
from userflow.tenants.actions import applications_of, change_slug, resume_tenant, suspend_tenant, update_tenant


class TenantView(RowView[Tenant]):
    """A page that changes the tenant in the path. Its form needs no tenant id: the path names the tenant."""

    permissions: ClassVar[tuple[str, ...]] = ("tenants:write",)
    operators_only = True
    page = "admin:tenants_tenant_change"
    key = "tenant_id"
    lookup = staticmethod(tenant_at)

    def names(self) -> Context:
        return {"tenant": self.row.name}


class Settings(EditView[Tenant], TenantView):
    """Change name and settings, by the action behind `PATCH /uflow/admin/tenants/<id>`.

    Admins of the tenant change the settings that the API lets them change.
    """

    permissions = ()
    operators_only = False
    action = Action.CHANGE_TENANT_SETTINGS
    template_name = "console/tenants/settings.html"
    title = _("Settings of %(tenant)s")
    text = _("An empty field uses the default of the platform.")
    form_class = SettingsForm
    call = staticmethod(update_tenant)
    done = _("The settings are saved. They apply from the next request on.")

    def run(self) -> HttpResponse:
        if not may_change_settings(self.staff):
            raise PermissionDenied(needed("tenants:write" if self.staff.is_operator else "admins:write"))
        return super().run()

    def load(self) -> None:
        super().load()
        self.known = lookup.find(self.row.pk)

    def get_form_kwargs(self) -> Context:
        by_operator = self.staff.is_operator
        return {**super().get_form_kwargs(), "by_operator": by_operator, "defaults": self.known.defaults}

    def get_context_data(self, **kwargs: object) -> Context:
        return {**super().get_context_data(**kwargs), "in_effect": self._in_effect(), "warnings": self._warnings()}

    def _warnings(self) -> list[str]:
        """Return what the settings risk: claims that users write, and stored names that are no claims any more."""
        tenant_settings = self.row.settings
        by_users, by_others = (
            names_in(tenant_settings, "metadata_claims"),
            names_in(tenant_settings, "app_metadata_claims"),
        )
        of_users = [name for name in by_users if is_issued(name)]
        ignored = [name for name in (*by_users, *by_others) if not is_issued(name)]
        warnings = []
        if of_users:
            says = _("Users write these claims about themselves, so applications must not rely on them: %(names)s.")
            warnings.append(says % {"names": ", ".join(of_users)})
        if ignored:
            says = _("These names are reserved, so they are no claims any more: %(names)s.")
            warnings.append(says % {"names": ", ".join(ignored)})
        return warnings

    def _in_effect(self) -> Table:
        effective, usual = cast(Context, self.known.effective), self.known.defaults
        rows = [
            (
                setting.label,
                setting_label(effective[name]),
                setting_label(usual[name]),
                self.row.settings.get(name) is not None,
            )
            for name, setting in SETTINGS.items()
        ]
        note = "" if self.staff.is_operator else _("The form leaves out the settings that only operators can change.")
        headers = (_("Setting"), _("In effect"), _("Default"), _("Set for this tenant"))
        return Table(title=_("Values in effect"), headers=headers, rows=rows, empty="", note=note)

    def get_initial(self) -> Context:
        # Settings of a newer release are not shown and stay.
        settings = {name: self.row.settings.get(name) for name in SETTINGS}
        return {"name": self.row.name, **settings}

    def update(self, changes: Arguments) -> Text:
        settings_changes = {name: changes.pop(name) for name in SETTINGS if name in changes}
        try:
            self.call_action(changes=changes | ({"settings": settings_changes} if settings_changes else {}))
        except (ValidationFailed, RelyingPartyTaken) as error:
            # The form's fields have the names of the settings.
            details = {name.removeprefix("settings."): told for name, told in (error.details or {}).items()}
            raise type(error)(error.text, details=details) from error
        return self.done


class ChangeSlug(TenantView):
    """Change the slug and with it the issuer, by the action behind `PATCH /uflow/admin/tenants/<id>`."""

    action = Action.CHANGE_TENANT_STATE
    template_name = "console/tenants/slug.html"
    form_class = SlugForm
    title = _("Change the slug of %(tenant)s")
    text = _(
        "The issuer changes from the next request on: the applications below can no longer sign users in until each is "
        "configured with the new issuer, and access tokens of the former issuer are rejected. Pages at the former address "
        "redirect, and no other tenant can take the former slug."
    )
    submit = _("Change slug")
    done = _("The slug of %(tenant)s is changed.")

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), "confirmation_text": self.row.slug}

    def get_context_data(self, **kwargs: object) -> Context:
        rows = [(name, client_id) for name, client_id in applications_of(tenant_id=self.row.pk)]
        headers = (_("Application"), _("Client ID"))
        issuer = issuer_of(lookup.find(self.row.pk))
        note = _("Present issuer: %(issuer)s") % {"issuer": issuer}
        table = Table(title=_("Applications"), headers=headers, rows=rows, empty=_("No application."), note=note)
        return {**super().get_context_data(**kwargs), "applications": table}

    def act(self, form: Form) -> Text:
        change_slug(**self.arguments(), slug=form.cleaned_data["slug"], confirm=self.row.slug)
        return str(self.done) % self.names()


class Suspend(TenantView):
    action = Action.CHANGE_TENANT_STATE
    form_class = Reason
    title = _("Suspend %(tenant)s")
    text = _(
        "From the next request on no one can sign in to %(tenant)s or use it. Its data stays, and you can resume it at "
        "any time."
    )
    submit = _("Suspend")
    call = staticmethod(suspend_tenant)
    done = _("%(tenant)s is suspended.")


class Resume(TenantView):
    action = Action.CHANGE_TENANT_STATE
    title = _("Resume %(tenant)s")
    text = _("Its users can sign in again from the next request on.")
    submit = _("Resume")
    dangerous = False
    call = staticmethod(resume_tenant)
    done = _("%(tenant)s is active again.")


class JobView(ConfirmView):
    """A page that starts a job and goes to the job's page."""

    permissions: ClassVar[tuple[str, ...]] = ("tenants:write",)
    operators_only = True
    kind: ClassVar[str]
    job: Job

    def about(self) -> Tenant | None:
        """Return the tenant that the job is about."""
        return None

    def act(self, form: Form) -> Text:
        tenant = self.about()
        params = {**form.cleaned_data, "slug": tenant.slug} if tenant else form.cleaned_data
        self.job = begin_job(kind=self.kind, by=self.staff.user, tenant_id=tenant.pk if tenant else None, params=params)
        return _("The job has started. This page shows its progress.")

    def get_success_url(self) -> str:
        return reverse("admin:console_job_change", args=[self.job.pk])


class Provision(JobView):
    kind = job_kinds.PROVISION
    list_page = "admin:tenants_tenant_changelist"
    action = Action.GRANT_ROLES
    title = _("Provision a tenant")
    text = _("The tenant gets a database of its own, a client for its first application, and an admin.")
    submit = _("Provision")
    dangerous = False
    form_class = ProvisionForm
    template_name = "console/tenants/provision.html"

    def load(self) -> None:
        must_grant_tenant_admin(self.request)


class TenantJobView(JobView, TenantView):
    def about(self) -> Tenant:
        return self.row


class Finish(TenantJobView):
    kind = job_kinds.FINISH
    title = _("Finish provisioning %(tenant)s")
    text = _("Its provisioning was interrupted or is still running. It continues from the step it reached.")
    submit = _("Finish")
    dangerous = False


class Migrate(TenantJobView):
    kind = job_kinds.MIGRATE
    title = _("Migrate %(tenant)s")
    text = _(
        "Its database is migrated to the schema of this release in one transaction. Meanwhile it can be read; writes are "
        "rejected with the request to retry."
    )
    submit = _("Migrate")
    dangerous = False


class BackUp(TenantJobView):
    kind = job_kinds.BACK_UP
    title = _("Back up %(tenant)s")
    text = _(
        "The whole database is written to a file in %(folder)s on this server that only its owner can read. The tenant "
        "stays available. Back up the global database and the encryption keys too: sealed secrets open only with them."
    )
    submit = _("Back up")
    dangerous = False

    def names(self) -> Context:
        return {**super().names(), "folder": settings.BACKUP_FOLDER}


class ChangeByJobView(TenantJobView):
    """A dangerous job whose form offers choices and requires the slug of the tenant."""

    action = Action.CHANGE_TENANT_STATE

    def choices(self) -> list[tuple[str, str]]:
        """Return what can be chosen."""
        raise NotImplementedError

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), "confirmation_text": self.row.slug, "choices": self.choices()}


class Move(ChangeByJobView):
    kind = job_kinds.MOVE
    form_class = MoveForm
    title = _("Move %(tenant)s")
    text = _(
        "Its database is copied to another server, compared and switched. The tenant stays in use and writes are rejected for "
        "about a second, if both servers allow logical replication; a dry run says whether they do. Otherwise it is "
        "read-only during the move."
    )
    submit = _("Start")

    def choices(self) -> list[tuple[str, str]]:
        others = DatabaseServer.objects.filter(accepts_tenants=True).exclude(pk=self.row.database.server_id)
        return [(name, f"{name} ({host})") for name, host in others.order_by("name").values_list("name", "host")]


class Restore(ChangeByJobView):
    kind = job_kinds.RESTORE
    form_class = RestoreForm
    title = _("Restore %(tenant)s")
    text = _(
        "Its database is restored from a backup into a new one, and the tenant then uses that. All changes since the backup "
        "are lost, and all users sign in again."
    )
    submit = _("Start")

    def choices(self) -> list[tuple[str, str]]:
        return [(name, name) for name in job_kinds.backups_of(self.row)]


class Delete(TenantJobView):
    kind = job_kinds.DELETE
    action = Action.CHANGE_TENANT_STATE
    title = _("Delete %(tenant)s")
    submit = _("Delete")

    def load(self) -> None:
        super().load()
        self.text = _("%(tenant)s, its database, its admins, clients and services are deleted.") + " "
        if settings.DELETED_TENANT_BACKUP_DAYS:
            self.form_class = DeletionForm
            self.text += _(
                "A final encrypted backup is kept for %(days)d days; until then the command restore_deleted_tenant "
                "restores the tenant. After that the key that opens its secrets and backups is deleted too, and nothing "
                "can restore it."
            )
        else:
            self.form_class = TypedName
            self.text += _("The key that opens its secrets and backups is deleted too: nothing can restore the tenant.")

    def names(self) -> Context:
        return {**super().names(), "days": settings.DELETED_TENANT_BACKUP_DAYS}

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), "confirmation_text": self.row.slug}

"""What can be done to a tenant: each page asks, then calls the action that the command of that name uses."""

from collections.abc import Callable
from typing import Any, Final

from django import forms
from django.conf import settings as configured
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _

from console.frame.access import must_grant_tenant_admin, needs, staff_at
from console.frame.confirm import TypedName, confirmed
from console.jobs.actions import begin_job
from console.jobs.models import Job
from console.tenants import job_kinds
from console.tenants.forms import DeletionForm, ProvisionForm, SettingsForm
from console.tenants.pages import tenant_at
from identity_platform.api.errors import ValidationFailed
from tenants.errors import RelyingPartyTaken
from tenants.models import Tenant
from userflow.sessions.assurance import Action
from userflow.tenants.actions import resume_tenant, suspend_tenant, update_tenant

writing = needs("tenants:write", operators_only=True)


def page_of(tenant: Tenant) -> str:
    """The address of the tenant's page."""
    return reverse("admin:tenants_tenant_change", args=[tenant.pk])


@writing
def provision(request: HttpRequest) -> HttpResponse:
    """A new tenant; the job's page shows how far it is."""
    must_grant_tenant_admin(request)
    return _as_job(
        request,
        kind=job_kinds.PROVISION,
        title=_("Provision a tenant"),
        text=_("The tenant gets a database of its own, a client for its first application, and an admin."),
        back=reverse("admin:tenants_tenant_changelist"),
        action=Action.GRANT_ROLES,
        submit=_("Provision"),
        form_class=ProvisionForm,
        dangerous=False,
    )


@writing
def settings(request: HttpRequest, tenant_id: str) -> HttpResponse:
    """Name, slug and settings, by the action behind `PATCH /uflow/admin/tenants/<id>`."""
    tenant = tenant_at(request, tenant_id)

    def act(data: dict[str, Any]) -> str:
        changes = SettingsForm(tenant=tenant).changes(data)
        if not changes:
            return _("Nothing was changed.")
        try:
            update_tenant(tenant_id=tenant.pk, by=staff_at(request).principal, changes=changes)
        except (ValidationFailed, RelyingPartyTaken) as error:
            # The form's fields are called as the settings are.
            details = {name.removeprefix("settings."): says for name, says in (error.details or {}).items()}
            raise type(error)(error.text, details=details) from error
        return _("The settings are changed; they count from the next request on.")

    return confirmed(
        request,
        title=_("Settings of %s") % tenant.name,
        text=_("An empty field means: as the platform has it."),
        back=page_of(tenant),
        action=Action.CHANGE_TENANT_SETTINGS,
        act=act,
        form_class=SettingsForm,
        form_options={
            "tenant": tenant,
            "initial": {"name": tenant.name, "slug": tenant.slug, **tenant.settings},
        },
        submit=_("Save"),
        # Where people are sent to set a new password stands among them.
        dangerous=False,
    )


@writing
def suspend(request: HttpRequest, tenant_id: str) -> HttpResponse:
    """Shut the tenant."""
    tenant = tenant_at(request, tenant_id)

    def act(data: dict[str, Any]) -> str:
        suspend_tenant(tenant_id=tenant.pk, by=staff_at(request).principal)
        return _("%s is suspended: from now on nobody of it gets in.") % tenant.name

    text = _("From the next request on nobody of %s gets in. Its data stays, and you can resume it at any time.")
    return confirmed(
        request,
        title=_("Suspend %s") % tenant.name,
        text=text % tenant.name,
        back=page_of(tenant),
        action=Action.CHANGE_TENANT_STATE,
        act=act,
        submit=_("Suspend"),
    )


@writing
def resume(request: HttpRequest, tenant_id: str) -> HttpResponse:
    """Open it again."""
    tenant = tenant_at(request, tenant_id)

    def act(data: dict[str, Any]) -> str:
        resume_tenant(tenant_id=tenant.pk, by=staff_at(request).principal)
        return _("%s is active again.") % tenant.name

    return confirmed(
        request,
        title=_("Resume %s") % tenant.name,
        text=_("Its people can sign in again from the next request on."),
        back=page_of(tenant),
        action=Action.CHANGE_TENANT_STATE,
        act=act,
        submit=_("Resume"),
        dangerous=False,
    )


@writing
def finish(request: HttpRequest, tenant_id: str) -> HttpResponse:
    """Go on with a provisioning that was interrupted."""
    tenant = tenant_at(request, tenant_id)
    return _as_job(
        request,
        kind=job_kinds.FINISH,
        tenant=tenant,
        title=_("Finish provisioning %s") % tenant.name,
        text=_("Its provisioning was interrupted, or runs still. It goes on from the step it reached."),
        action=None,
        submit=_("Finish"),
        dangerous=False,
    )


@writing
def migrate(request: HttpRequest, tenant_id: str) -> HttpResponse:
    """Bring its database to this release's schema."""
    tenant = tenant_at(request, tenant_id)
    return _as_job(
        request,
        kind=job_kinds.MIGRATE,
        tenant=tenant,
        title=_("Migrate %s") % tenant.name,
        text=_(
            "Its database is brought to this release's schema in one transaction. Meanwhile its people read, and what they "
            "write is asked to come again."
        ),
        action=None,
        submit=_("Migrate"),
        dangerous=False,
    )


@writing
def backup(request: HttpRequest, tenant_id: str) -> HttpResponse:
    """Write its database into a file."""
    tenant = tenant_at(request, tenant_id)
    text = _(
        "The whole database is written into a file in %s on this server, readable by its owner alone; its people go on "
        "working. Back up the global database and the encryption keys as well: sealed secrets open only with them."
    )
    return _as_job(
        request,
        kind=job_kinds.BACK_UP,
        tenant=tenant,
        title=_("Back up %s") % tenant.name,
        text=text % configured.BACKUP_FOLDER,
        action=None,
        submit=_("Back up"),
    )


@writing
def delete(request: HttpRequest, tenant_id: str) -> HttpResponse:
    """Delete it; the slug must be typed."""
    tenant = tenant_at(request, tenant_id)
    days = configured.DELETED_TENANT_BACKUP_DAYS
    text = _("%(tenant)s, its database, its admins, clients and services are deleted.") + " "
    if days:
        text += _(
            "A final encrypted backup is kept for %(days)d days; until then the command restore_deleted_tenant brings the "
            "tenant back. After that the key that opens its secrets and backups is deleted too, and nothing does."
        )
    else:
        text += _("The key that opens its secrets and backups is deleted too: nothing brings the tenant back.")
    return _as_job(
        request,
        kind=job_kinds.DELETE,
        tenant=tenant,
        title=_("Delete %s") % tenant.name,
        text=text % {"tenant": tenant.name, "days": days},
        action=Action.CHANGE_TENANT_STATE,
        submit=_("Delete"),
        form_class=DeletionForm if days else TypedName,
        form_options={"wanted": tenant.slug},
    )


def _as_job(
    request: HttpRequest,
    *,
    kind: str,
    title: str,
    text: str,
    submit: str,
    action: Action | None,
    tenant: Tenant | None = None,
    back: str = "",
    form_class: type[forms.Form] = forms.Form,
    form_options: dict[str, Any] | None = None,
    dangerous: bool = True,
) -> HttpResponse:
    """Ask, then begin a job and go to its page."""
    begun: list[Job] = []

    def act(data: dict[str, Any]) -> str:
        params = {**data, "slug": tenant.slug} if tenant else data
        by = staff_at(request).user
        begun.append(begin_job(kind=kind, by=by, tenant_id=tenant.pk if tenant else None, params=params))
        return _("The job has begun; this page follows it.")

    return confirmed(
        request,
        title=title,
        text=text,
        back=back or (page_of(tenant) if tenant else ""),
        action=action,
        act=act,
        form_class=form_class,
        form_options=form_options,
        submit=submit,
        dangerous=dangerous,
        shown=lambda _request: HttpResponseRedirect(reverse("admin:console_job_change", args=[begun[0].pk])),
    )


STEPS: Final[dict[str, Callable[..., HttpResponse]]] = {
    "settings": settings,
    "suspend": suspend,
    "resume": resume,
    "finish": finish,
    "migrate": migrate,
    "backup": backup,
    "delete": delete,
}

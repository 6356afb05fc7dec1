"""The page of a tenant: its facts, metrics, settings, admins, clients, services, jobs and events."""

from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _

from console.frame.access import Context, Staff, staff_at
from console.frame.labels import state as state_label
from console.frame.records import Button, render_page, with_encoded_form
from console.frame.scope import act_on, chosen_tenant
from console.jobs.models import Job
from console.metrics.tables import linked, recent_events, when
from console.tenants.job_kinds import KIND_NAMES
from console.tenants.labels import STATE_COLOURS, is_current, setting_label, size_label
from identity_platform.audit.models import PlatformEvent
from registry.models import Service, ServiceCount
from tenants.jobs.fleet import MIGRATED
from tenants.models import Tenant
from tenants.settings.declarations import SETTINGS
from tenants.settings.values import defaults
from tenants.states import ALLOWED, Purpose, State
from userflow.accounts.models import AdminUser, Client

SHOWN = 6
# In these states a tenant can be moved and restored.
RELOCATED: Final = (State.ACTIVE, State.SUSPENDED, State.MOVING, State.FAILED)


def may_look(staff: Staff) -> bool:
    """Return whether the user may see tenants: operators need tenants:read, tenant admins see their own tenant."""
    return not staff.is_operator or staff.may("tenants:read")


def tenant_at(request: HttpRequest, tenant_id: UUID) -> Tenant:
    """Return the tenant in the path with its database and metrics; the page acts on it.

    Raises PermissionDenied, or Http404 for a tenant that does not exist, was deleted or may not be seen.
    """
    staff = staff_at(request)
    if not may_look(staff):
        raise PermissionDenied
    if staff.user.tenant_id not in (None, tenant_id):
        raise Http404
    tenants = Tenant.objects.select_related("database__server", "figures").exclude(database__status=State.DELETED)
    tenant = get_object_or_404(tenants, pk=tenant_id)
    act_on(request, tenant)
    return tenant


def tenant_page(request: HttpRequest, tenant_id: UUID) -> HttpResponse:
    tenant = tenant_at(request, tenant_id)
    staff = staff_at(request)
    context: Context = {
        "tenant": tenant,
        "state": state_label(tenant.database.status),
        "state_colour": STATE_COLOURS.get(tenant.database.status, ""),
        "facts": _facts(tenant, staff),
        "settings_table": _settings(tenant),
        "buttons": _buttons(tenant, staff),
    }
    if staff.may("admins:read"):
        context["admins"] = _admins(tenant)
    if staff.may("clients:read"):
        context["clients"] = _clients(request, tenant)
    if staff.may("services:read"):
        context["services"] = _services(request, tenant)
    if staff.may("audit:read"):
        context["events"] = recent_events(tenant.pk, reader=staff.user.tenant_id, shown=SHOWN)
    if staff.is_operator:
        # Messages of database servers are for operators only.
        context["reason"] = tenant.database.reason
        if tenant.database.status == State.SUSPENDED:
            context["suspension"] = _suspension(tenant)
        context["failure"] = getattr(getattr(tenant, "figures", None), "failure", "")
        context["jobs"] = _jobs(tenant)
    return render_page(request, "console/tenants/tenant.html", tenant.name, context)


def _buttons(tenant: Tenant, staff: Staff) -> list[Button]:
    """Return the buttons that the tenant's state allows. Only operators may change tenants, as over the API."""
    state = State(tenant.database.status)
    buttons = []
    if staff.is_operator and Purpose.INSPECT in ALLOWED[state]:
        buttons.append(Button(_("Open tenant"), f"{reverse('admin:choose_tenant')}?tenant={tenant.pk}"))
    if not staff.is_operator or not staff.may("tenants:write"):
        has_settings = may_change_settings(staff) and state not in (State.PROVISIONING, State.DELETING)
        return buttons + ([_button(tenant, "settings", _("Settings"))] if has_settings else [])
    possible_buttons = [
        ("finish", _("Finish provisioning"), "primary", state == State.PROVISIONING),
        ("settings", _("Settings"), "primary", state not in (State.PROVISIONING, State.DELETING)),
        ("slug", _("Change slug"), "default", state not in (State.PROVISIONING, State.DELETING)),
        (
            "migrate",
            _("Migrate"),
            "default",
            state == State.MIGRATING or (not is_current(tenant) and state in MIGRATED),
        ),
        ("backup", _("Back up"), "default", state not in (State.PROVISIONING, State.DELETING)),
        ("move", _("Move"), "default", state in RELOCATED),
        ("restore", _("Restore"), "default", state in RELOCATED),
        ("suspend", _("Suspend"), "default", state == State.ACTIVE),
        ("resume", _("Resume"), "default", state == State.SUSPENDED),
        ("delete", _("Delete"), "danger", state not in (State.MIGRATING, State.MOVING)),
    ]
    return buttons + [
        _button(tenant, name, label, variant) for name, label, variant, allowed in possible_buttons if allowed
    ]


def _button(tenant: Tenant, name: str, label: str, variant: str = "primary") -> Button:
    return Button(label, reverse(f"admin:tenants_tenant_{name}", args=[tenant.pk]), variant)


def _facts(tenant: Tenant, staff: Staff) -> list[tuple[str, object]]:
    database, figures = tenant.database, getattr(tenant, "figures", None)
    facts: list[tuple[str, object]] = [
        (_("Id"), tenant.pk),
        (_("Slug"), tenant.slug),
        (_("Created"), tenant.created_at),
    ]
    if staff.is_operator:
        facts += [
            (_("Server"), f"{database.server.name} ({database.server.host})"),
            (_("Database"), database.name),
            (_("Schema"), _("current") if is_current(tenant) else _("outdated: %s") % (database.schema_version or "–")),
        ]
    if figures is not None and figures.collected_at is not None:
        facts.append((_("Size"), size_label(figures.database_bytes)))
        if staff.may("endusers:read"):
            words = {
                "users": f"{figures.users:,}",
                "active": f"{figures.active_users:,}",
                "some": f"{figures.protected_users:,}",
            }
            facts.append((_("Users"), _("%(users)s, %(active)s active, %(some)s of them with a factor") % words))
        facts.append((_("Response time"), f"{figures.check_ms:.1f} ms"))
        facts.append((_("Metrics as of"), figures.collected_at))
    return facts


def _settings(tenant: Tenant) -> Context:
    # Not of the tenant's own domain, which only the page of the settings reads.
    usual = defaults(tenant.settings, tenant_name=tenant.name, slug=tenant.slug)
    rows = [
        [
            SETTINGS[name].label if name in SETTINGS else name,
            setting_label(value),
            setting_label(usual.get(name)),
        ]
        for name, value in sorted(tenant.settings.items())
    ]
    return {"headers": [_("Setting"), _("Value"), _("Default")], "rows": rows}


def may_change_settings(staff: Staff) -> bool:
    """Return whether the user may change settings of tenants, as over the API."""
    return staff.may("tenants:write" if staff.is_operator else "admins:write")


def _suspension(tenant: Tenant) -> PlatformEvent | None:
    """Return the event that has suspended the tenant."""
    events = PlatformEvent.objects.filter(tenant_id=tenant.pk, action="tenant.suspended")
    return events.first()


def _admins(tenant: Tenant) -> Context:
    admins = AdminUser.objects.filter(tenant=tenant).order_by("-created_at", "id")
    rows = [
        [
            linked("userflow_adminuser", admin.pk, admin.username),
            with_encoded_form(admin.email),
            ", ".join(admin.mfa_methods) or _("no factor"),
            _("active") if admin.active else _("deactivated"),
        ]
        for admin in admins[:SHOWN]
    ]
    headers = [_("Admin"), _("E-mail"), _("Factors"), _("State")]
    return _newest(headers, rows, of=admins.count(), more=reverse("admin:userflow_adminuser_changelist"))


def _clients(request: HttpRequest, tenant: Tenant) -> Context:
    clients = Client.objects.filter(tenant=tenant).order_by("-created_at", "id")
    rows = [
        [
            _tenant_link(request, tenant, "userflow_client", client.pk, client.name),
            client.type,
            _("yes") if client.is_default else "",
            _("active") if client.active else _("deactivated"),
        ]
        for client in clients[:SHOWN]
    ]
    headers = [_("Client"), _("Type"), _("Default"), _("State")]
    more = _tenant_path(request, tenant, reverse("admin:userflow_client_changelist"))
    return _newest(headers, rows, of=clients.count(), more=more)


def _services(request: HttpRequest, tenant: Tenant) -> Context:
    services = Service.objects.filter(tenant=tenant).order_by("-created_at", "-id")
    rows = [
        [_tenant_link(request, tenant, "registry_service", service.pk, service.name), service.type, service.status]
        for service in services[:SHOWN]
    ]
    # A counter that triggers maintain: a tenant may have a hundred thousand services.
    counts = ServiceCount.objects.filter(tenant_id=tenant.pk, type="").values_list("services", flat=True)
    more = _tenant_path(request, tenant, reverse("admin:registry_service_changelist"))
    return _newest([_("Service"), _("Type"), _("State")], rows, of=sum(counts), more=more)


def _newest(headers: list[str], rows: list[list[str]], *, of: int, more: str) -> Context:
    return {"headers": headers, "rows": rows, "count": of, "more": more}


def _tenant_path(request: HttpRequest, tenant: Tenant, path: str) -> str:
    # These pages show the chosen tenant only. For another tenant the link leads through the chooser: the same path
    # would be 404, or the list of the wrong tenant.
    chosen = chosen_tenant(request)
    if chosen is not None and chosen.pk == tenant.pk:
        return path
    return f"{reverse('admin:choose_tenant')}?{urlencode({'tenant': tenant.pk, 'next': path})}"


def _tenant_link(request: HttpRequest, tenant: Tenant, model: str, key: object, name: str) -> str:
    path = reverse(f"admin:{model}_change", args=[key])
    return format_html('<a class="text-link" href="{}">{}</a>', _tenant_path(request, tenant, path), name)


def _jobs(tenant: Tenant) -> Context:
    rows = [
        [
            linked("console_job", job.pk, str(KIND_NAMES.get(job.kind, job.kind))),
            job.read_status(),
            job.begun_by.username if job.begun_by else "–",
            when(job.created_at),
        ]
        for job in Job.objects.filter(tenant_id=tenant.pk).select_related("begun_by").order_by("-created_at")[:SHOWN]
    ]
    return {"headers": [_("Job"), _("State"), _("Started by"), _("Started")], "rows": rows}

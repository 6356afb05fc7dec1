"""The pages of the audit logs, and their export.

Every page costs the same: it begins after an event's id and nothing is counted. Operators see the whole log of the platform,
tenant admins its events about their tenant; the tenant's own log is that of the open tenant.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.audit_logs.events import described
from console.audit_logs.export import download
from console.audit_logs.search import EventExport, EventSearch, PlatformExport, PlatformSearch, Reader
from console.frame.access import Context, needs, staff_at
from console.frame.confirm import ConfirmView, TenantConfirmView
from console.frame.records import Text, render_page
from console.frame.scope import chosen_tenant
from console.frame.tenant_pages import reading_purpose, tenant_page
from identity_platform.audit.writer import record_for_tenant
from tenants.models import Tenant
from tenants.states import Purpose
from userflow.audit.actions import PLATFORM, READ_AT_MOST, TENANT, export_events, page_of_events

PAGE: Final = 50
# The limit of a download in the browser; the command export_audit has none.
MOST_EXPORTED: Final = 100_000
PLATFORM_LOG, TENANT_LOG = "admin:audit_trail", "admin:tenant_trail"


@needs("audit:read")
def listed(request: HttpRequest) -> HttpResponse:
    """Show one page of the platform's log, newest first."""
    reader = Reader(staff_at(request))
    form = PlatformSearch(data=request.GET, reader=reader)
    tenant_id = _about(form, reader) if form.is_valid() else None
    return _page(request, form, tenant_id=tenant_id, purpose=Purpose.READ)


@tenant_page("audit:read")
def of_tenant(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Show one page of the open tenant's own log, newest first."""
    form = EventSearch(data=request.GET, reader=Reader(staff_at(request), tenant))
    filters = sorted(form.query_parameters()) if form.is_valid() else []
    record_for_tenant("audit.viewed", details={"console": True, "filters": filters})
    return _page(request, form, tenant_id=tenant.pk, purpose=reading_purpose(request))


def _about(form: forms.Form, reader: Reader) -> UUID | None:
    """Return the tenant that the events of the platform's log must be about: the reader's, or the one in the valid form."""
    tenant = form.cleaned_data.get("tenant")
    return reader.staff.user.tenant_id or (tenant.pk if tenant else None)


def _page(request: HttpRequest, form: EventSearch, *, tenant_id: UUID | None, purpose: Purpose) -> TemplateResponse:
    staff, tenant = form.reader.staff, form.reader.tenant
    open_tenant = chosen_tenant(request)
    rows: list[Context] = []
    older = None
    if form.is_valid():
        rows, older = page_of_events(
            tenant_id=tenant_id,
            trail=TENANT if tenant else PLATFORM,
            limit=PAGE,
            filters=form.filters(),
            before=form.cleaned_data["before"],
            purpose=purpose,
            to_operator=staff.is_operator,
        )
    query_parameters = form.query_parameters()
    export = reverse("admin:tenant_audit_export" if tenant else "admin:audit_export")
    context = {
        "form": form,
        "asked": query_parameters,
        "events": described(
            rows,
            staff=staff,
            in_tenant=tenant is not None,
            open_tenant=open_tenant.pk if open_tenant else None,
            with_tenant=tenant is None and staff.is_operator,
        ),
        "scopes": _scopes(open_tenant, in_tenant=tenant is not None),
        "tenant": tenant,
        "older": f"?{urlencode({**query_parameters, 'before': older})}" if older else "",
        "newest": f"?{urlencode(query_parameters)}" if "before" in request.GET else "",
        "export": f"{export}?{urlencode(query_parameters)}",
        "read_at_most": READ_AT_MOST,
    }
    status = 200 if form.is_valid() else 400
    return render_page(request, "console/audit_logs/page.html", _("Audit log"), context, status=status)


def _scopes(open_tenant: Tenant | None, *, in_tenant: bool) -> list[Context]:
    """Return the links between the logs: label, page, and whether it is the one that is shown."""
    scopes: list[Context] = [{"label": _("Platform"), "link": reverse(PLATFORM_LOG), "shown": not in_tenant}]
    if open_tenant is not None:
        scopes.append({"label": open_tenant.name, "link": reverse(TENANT_LOG), "shown": in_tenant})
    return scopes


class Export(ConfirmView):
    """Download the platform's log as a file. The export is audited before the first byte is sent."""

    permissions = ("audit:read",)
    list_page = PLATFORM_LOG
    title = _("Export the audit log")
    text = _(
        "At most %(most)d events are exported, oldest first. For more, narrow the time or use the command export_audit. "
        "The file names users by ids and contains IP addresses: store it as carefully as the log itself."
    )
    submit = _("Export")
    dangerous = False
    form_class: type[forms.Form] = PlatformExport

    events: Iterator[Context]
    file_format: str

    def names(self) -> Context:
        return {"most": MOST_EXPORTED}

    def get_initial(self) -> Context:
        return {name: value for name, value in self.request.GET.items() if name in self.form_class.base_fields}

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), "reader": Reader(self.staff, self.tenant)}

    def matching(self, form: EventSearch) -> Iterator[Context]:
        """Return the events of the export."""
        return export_events(
            tenant_id=_about(form, form.reader),
            trail=PLATFORM,
            filters=form.filters(),
            to_operator=self.staff.is_operator,
        )

    def act(self, form: forms.Form) -> Text:
        assert isinstance(form, EventSearch)
        events = self.matching(form)
        # Reading the first event writes the audit event, in this request and under this user.
        first = list(islice(events, 1))
        self.events, self.file_format = islice(chain(first, events), MOST_EXPORTED), form.cleaned_data["form"]
        return _("The export was recorded in the audit log.")

    def respond(self) -> HttpResponse:
        return download(self.events, self.file_format)


class TenantExport(Export, TenantConfirmView):
    """Download the open tenant's own log, likewise."""

    list_page = TENANT_LOG
    form_class = EventExport

    def matching(self, form: EventSearch) -> Iterator[Context]:
        purpose = reading_purpose(self.request)
        return export_events(
            tenant_id=self.tenant.pk,
            trail=TENANT,
            filters=form.filters(),
            purpose=purpose,
            to_operator=self.staff.is_operator,
        )

"""One service: its page, and the pages that change it. Every change is an action of the registry."""

import json
from uuid import UUID

from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame import labels
from console.frame.access import Context, needs, staff_at
from console.frame.confirm import ChosenTenantConfirmView, CreateView, DeleteView, EditView, RowView
from console.frame.records import GOOD, NOTHING, PLAIN, Button, Cell, Record, Text, moment, record_page
from console.registry.credential_pages import SERVICE, credentials_table, find_service, open_tenant
from console.registry.forms import ServiceForm
from registry import actions
from registry.models import ACTIVE, Service

LIST = "admin:registry_service_changelist"


@needs("services:read")
def show(request: HttpRequest, service_id: UUID) -> HttpResponse:
    """A service with its credentials."""
    staff, service = staff_at(request), find_service(request, service_id)
    buttons = []
    if staff.may("services:write"):
        buttons.append(Button(_("Edit"), reverse("admin:service_edit", args=[service.pk])))
    if staff.may("services:delete"):
        buttons.append(Button(_("Delete"), reverse("admin:registry_service_delete", args=[service.pk])))
    facts = (
        (_("State"), Cell(labels.state(service.status), tone=GOOD if service.status == ACTIVE else PLAIN)),
        (_("Type"), Cell(service.type)),
        (_("Base URL"), Cell(service.base_url, mono=True)),
        (_("API version"), Cell(service.api_version or NOTHING)),
        (_("Description"), Cell(service.description or NOTHING)),
        (_("Metadata"), Cell(json.dumps(service.metadata, ensure_ascii=False) if service.metadata else NOTHING)),
        (_("Id"), Cell(service.pk, mono=True)),
        (_("Created"), Cell(moment(service.created_at))),
        (_("Updated"), Cell(moment(service.updated_at))),
    )
    return record_page(
        request,
        Record(
            title=service.name,
            facts=facts,
            tables=[credentials_table(staff, service)],
            buttons=buttons,
            back=reverse(LIST),
        ),
    )


class CreateService(CreateView[Service], ChosenTenantConfirmView):
    """Create a service."""

    permissions = ("services:write",)
    page = SERVICE
    list_page = LIST
    title = _("Add service")
    text = _("A service that applications of %(tenant)s call.")
    form_class = ServiceForm

    def load(self) -> None:
        self.tenant = open_tenant(self.request)

    def act(self, form: Form) -> Text:
        self.row = actions.create_service(tenant_id=self.tenant.pk, **form.cleaned_data)
        return _("The service is created. Add its first credential.")


class ServiceConfirmView(RowView[Service]):
    """A page that changes one service of the chosen tenant."""

    page = SERVICE
    list_page = LIST

    def find(self) -> Service:
        return find_service(self.request, self.kwargs["service_id"])


class EditService(EditView[Service], ServiceConfirmView):
    """Change a service."""

    permissions = ("services:write",)
    title = _("Edit %(name)s")
    text = _("The change applies from the next request of applications on.")
    form_class = ServiceForm
    saved = _("The service is saved.")

    def update(self, changes: Context) -> None:
        actions.update_service(tenant_id=self.row.tenant_id, service_id=self.row.pk, changes=changes)


class DeleteService(DeleteView[Service], ServiceConfirmView):
    """Delete a service; the action rejects it while the service has active credentials."""

    permissions = ("services:delete",)
    title = _("Delete %(name)s")

    def load(self) -> None:
        super().load()
        number = self.row.credentials.count()
        self.text = ngettext(
            "The service and its %(number)d credential are deleted permanently. Revoke active credentials first.",
            "The service and its %(number)d credentials are deleted permanently. Revoke active credentials first.",
            number,
        ) % {"number": number}

    def act(self, form: Form) -> Text:
        actions.delete_service(tenant_id=self.row.tenant_id, service_id=self.row.pk)
        return _("The service is deleted.")

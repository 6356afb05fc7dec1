"""One service: its page, and the pages that change it. Every change is an action of the registry."""

import json
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame import labels
from console.frame.access import Arguments, needs, staff_at
from console.frame.confirm import ChosenTenantConfirmView, CreateView, DeleteView, EditView
from console.frame.records import Button, Cell, Tone, mono, record_page
from console.registry.credential_pages import (
    LIST,
    SERVICE,
    ServiceConfirmView,
    credentials_table,
    find_service,
    open_tenant,
)
from console.registry.forms import ServiceForm
from registry import actions
from registry.models import ACTIVE, Service


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
        (_("State"), Cell(labels.state(service.status), tone=Tone.GOOD if service.status == ACTIVE else Tone.PLAIN)),
        (_("Type"), service.type),
        (_("Base URL"), mono(service.base_url)),
        (_("API version"), service.api_version),
        (_("Description"), service.description),
        (_("Metadata"), json.dumps(service.metadata, ensure_ascii=False) if service.metadata else None),
        (_("Id"), mono(service.pk)),
        (_("Created"), service.created_at),
        (_("Updated"), service.updated_at),
    )
    tables = [credentials_table(staff, service)]
    return record_page(request, service.name, facts=facts, tables=tables, buttons=buttons, back=reverse(LIST))


class CreateService(CreateView[Service], ChosenTenantConfirmView):
    permissions = ("services:write",)
    page = SERVICE
    list_page = LIST
    title = _("Add service")
    text = _("A service that applications of %(tenant)s call.")
    form_class = ServiceForm
    call = staticmethod(actions.create_service)
    done = _("The service is created. Add its first credential.")

    def load(self) -> None:
        self.tenant = open_tenant(self.request)

    def arguments(self) -> Arguments:
        return {"tenant_id": self.tenant.pk}


class EditService(EditView[Service], ServiceConfirmView):
    permissions = ("services:write",)
    title = _("Edit %(name)s")
    text = _("The change applies from the next request of applications on.")
    form_class = ServiceForm
    call = staticmethod(actions.update_service)
    done = _("The service is saved.")


class DeleteService(DeleteView[Service], ServiceConfirmView):
    """Delete a service; the action rejects it while the service has active credentials."""

    permissions = ("services:delete",)
    title = _("Delete %(name)s")
    call = staticmethod(actions.delete_service)
    done = _("The service is deleted.")

    def load(self) -> None:
        super().load()
        number = self.row.credentials.count()
        self.text = ngettext(
            "The service and its %(number)d credential are deleted permanently. Revoke active credentials first.",
            "The service and its %(number)d credentials are deleted permanently. Revoke active credentials first.",
            number,
        ) % {"number": number}

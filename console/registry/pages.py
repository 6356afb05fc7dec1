"""One service and its credentials: the page, and the pages that change them. Every change is an action of the registry.

A secret is on one page only, the response to its reveal.
"""

import json
from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame import labels
from console.frame.access import Context, Staff, needs, staff_at
from console.frame.confirm import ChosenTenantConfirmView, CreateView, DeleteView, EditView, RowView
from console.frame.forms import Reason
from console.frame.records import Button, Cell, Table, Text, Tone, buttons_to, mono, record_page, secret_page
from console.frame.scope import tenant_at
from console.registry.forms import CredentialForm, ExpiryForm, SecretForm, ServiceForm
from identity_platform.api.views import Arguments
from registry import actions
from registry.actions import READ_SECRETS
from registry.models import ACTIVE, EXPIRED, REVOKED, Service, ServiceCredential
from tenants.entering import lookup
from tenants.models import Tenant
from tenants.states import Purpose
from userflow.sessions.assurance import Action

# A service has a handful of credentials. Those beyond are found through the API.
MOST_SHOWN = 200
_TONES = {ACTIVE: Tone.GOOD, REVOKED: Tone.BAD, EXPIRED: Tone.WARNING}
LIST: Final = "admin:registry_service_changelist"
SERVICE: Final = "admin:registry_service_change"


def open_tenant(request: HttpRequest) -> Tenant:
    """Return the chosen tenant. Raises UnknownTenant if it is deleted or being provisioned, as the API does."""
    tenant = tenant_at(request)
    lookup.find(tenant.pk).check(Purpose.INSPECT)
    return tenant


def find_service(request: HttpRequest, service_id: UUID) -> Service:
    """Return the service of the chosen tenant. Raises Http404."""
    return get_object_or_404(Service, pk=service_id, tenant_id=open_tenant(request).pk)


def credentials_table(staff: Staff, service: Service) -> Table:
    """Return the credentials of a service, without secrets."""
    credentials = list(service.credentials.defer("secret").order_by("-created_at", "-id")[: MOST_SHOWN + 1])
    at = now()
    add = Button(_("Add credential"), reverse("admin:credential_add", args=[service.pk]), "primary")
    shown = credentials[:MOST_SHOWN]
    return Table(
        title=_("Credentials"),
        headers=(_("Name"), _("Type"), _("State"), _("Expires"), _("Last read"), _("Updated")),
        rows=[
            (row.name, row.type, _status(row, at), row.expires_at, row.last_read_at, row.updated_at) for row in shown
        ],
        actions=[_buttons(service, row, at) for row in shown] if staff.may(READ_SECRETS) else (),
        buttons=[add] if staff.may(READ_SECRETS) else (),
        note=_("The newest %(most)d are shown.") % {"most": MOST_SHOWN} if len(credentials) > MOST_SHOWN else "",
        empty=_("No credentials yet. Add one so that the tenant's applications can fetch it."),
    )


def _status(credential: ServiceCredential, at: datetime) -> Cell:
    status = actions.status_of(credential, at)
    return Cell(labels.state(status), tone=_TONES[status])


def _buttons(service: Service, credential: ServiceCredential, at: datetime) -> list[Button]:
    status = actions.status_of(credential, at)
    titles: dict[str, Text] = {"reveal": _("Reveal")} if status == service.status == ACTIVE else {}
    titles["rotate"] = _("Rotate")
    titles |= {"activate": _("Activate")} if status == REVOKED else {"revoke": _("Revoke")}
    titles |= {"expiry": _("Expiry"), "delete": _("Delete")}
    return buttons_to("credential", service.pk, credential.pk, **titles)


class ServiceConfirmView(RowView[Service]):
    page = SERVICE
    list_page = LIST
    key = "service_id"
    lookup = staticmethod(find_service)

    def arguments(self) -> Arguments:
        return {"tenant_id": self.row.tenant_id, "service_id": self.row.pk}


class AddCredential(ServiceConfirmView):
    permissions = (READ_SECRETS,)
    title = _("Add credential to %(name)s")
    text = _("Applications with the permission services:credentials can fetch it from now on.")
    submit = _("Save")
    dangerous = False
    form_class = CredentialForm
    call = staticmethod(actions.create_credential)
    done = _("The credential is stored. Its secret is encrypted.")


class CredentialConfirmView(RowView[ServiceCredential]):
    """A page that changes one credential, and goes back to the service."""

    permissions = (READ_SECRETS,)
    service: Service

    def find(self) -> ServiceCredential:
        self.service = find_service(self.request, self.kwargs["service_id"])
        # Without its secret, which only the reveal reads.
        return get_object_or_404(self.service.credentials.defer("secret"), pk=self.kwargs["credential_id"])

    def get_back_url(self) -> str:
        return reverse(SERVICE, args=[self.service.pk])

    def arguments(self) -> Arguments:
        row = self.row
        return {"tenant_id": self.service.tenant_id, "service_id": self.service.pk, "credential_id": row.pk}


class ChangeView(CredentialConfirmView):
    """A page that changes what its form or the page itself states of a credential."""

    checks_locked_row = True
    call = staticmethod(actions.update_credential)
    changes: ClassVar[Context] = {}

    def act(self, form: Form) -> Text:
        self.call_action(changes={**self.changes, **form.cleaned_data})
        return self.done


class Rotate(ChangeView):
    guarded_fields = ("updated_at",)
    title = _("Rotate %(name)s")
    text = _("Applications receive the new secret from their next request on. The earlier secret is deleted.")
    submit = _("Rotate")
    form_class = SecretForm
    done = _("The credential is rotated.")


class Revoke(ChangeView):
    title = _("Revoke %(name)s")
    text = _("Applications no longer receive this credential from their next request on. It can be activated again.")
    changes = {"status": REVOKED}
    done = _("The credential is revoked.")


class Activate(ChangeView):
    title = _("Activate %(name)s")
    text = _("Applications receive this credential again. If it was revoked because it leaked, rotate it first.")
    changes = {"status": ACTIVE}
    done = _("The credential is active.")


class Expiry(ChangeView):
    title = _("Expiry of %(name)s")
    text = _("Applications no longer receive the credential after this time.")
    submit = _("Save")
    dangerous = False
    form_class = ExpiryForm
    done = _("The expiry is saved.")

    def get_initial(self) -> Context:
        return {"expires_at": self.row.expires_at}


class DeleteCredential(CredentialConfirmView):
    title = _("Delete %(name)s")
    text = _("The credential and its secret are deleted permanently. Applications no longer receive it.")
    call = staticmethod(actions.delete_credential)
    done = _("The credential is deleted.")


class Reveal(CredentialConfirmView):
    """Show a secret once, after a recent authentication and with a reason that is audited."""

    action = Action.REVEAL_SECRET
    title = _("Reveal %(name)s")
    text = _("The secret is shown once. State why you need it: the reason is kept in the audit log.")
    submit = _("Reveal")
    form_class = Reason
    call = staticmethod(actions.reveal_credential)
    done = _("The secret is shown on this page only. The audit log records who has seen it and why.")
    secret: object

    def arguments(self) -> Arguments:
        return {**super().arguments(), "by": self.staff.principal}

    def keep(self, result: tuple[ServiceCredential, object]) -> None:
        _credential, self.secret = result

    def respond(self) -> HttpResponse:
        secret = self.secret
        text = secret if isinstance(secret, str) else json.dumps(secret, indent=2, ensure_ascii=False)
        return secret_page(self.request, of=self.row.name, secret=text, back=self.get_back_url())


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

    def arguments(self) -> Arguments:
        return {**super().arguments(), "by": self.staff.principal}


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
            "The service is deleted permanently, with %(number)d credential. Revoke active credentials first.",
            "The service is deleted permanently, with %(number)d credentials. Revoke active credentials first.",
            number,
        ) % {"number": number}

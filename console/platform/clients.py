"""One client of the chosen tenant: the record, and the pages that change it. A secret is shown once."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.frame.access import Staff, needs, staff_at
from console.frame.confirm import ConfirmView
from console.frame.forms import Fields
from console.frame.records import (
    BAD,
    GOOD,
    NOTHING,
    Button,
    Cell,
    Record,
    Text,
    moment,
    record_page,
    secret_page,
    yes_or_no,
)
from console.frame.scope import tenant_at
from console.platform.forms import ClientForm, OverlapForm
from tenants.models import Tenant
from userflow.accounts.models import CONFIDENTIAL, Client
from userflow.clients import actions
from userflow.sessions.assurance import Action

LIST = "admin:userflow_client_changelist"
_FIELDS = ("name", "redirect_uris", "scopes", "tags", "self_registration")


def _find(request: HttpRequest, client_id: UUID) -> Client:
    return actions.find_client(tenant_id=tenant_at(request).pk, client_id=client_id)


def _page_of(client: Client) -> str:
    return reverse("admin:userflow_client_change", args=[client.pk])


@needs("clients:read")
def show(request: HttpRequest, client_id: UUID) -> HttpResponse:
    """A client."""
    client = _find(request, client_id)
    facts = (
        (_("State"), Cell(_("active"), tone=GOOD) if client.active else Cell(_("deactivated"), tone=BAD)),
        (_("Client id"), Cell(client.pk, mono=True)),
        (_("Type"), Cell(client.type)),
        (_("Default client"), yes_or_no(client.is_default)),
        (_("Self-registration"), yes_or_no(client.self_registration)),
        (_("Scopes"), Cell(", ".join(client.scopes) or NOTHING)),
        (_("Redirect URIs"), Cell(", ".join(client.redirect_uris) or NOTHING)),
        (_("Tags"), Cell(", ".join(client.tags) or NOTHING)),
        (_("Previous secret works until"), Cell(moment(client.previous_secret_until))),
        (_("Last used"), Cell(moment(client.last_used_at))),
        (_("Created"), Cell(moment(client.created_at))),
    )
    record = Record(title=client.name, facts=facts, buttons=_buttons(staff_at(request), client), back=reverse(LIST))
    return record_page(request, record)


def _buttons(staff: Staff, client: Client) -> list[Button]:
    if not staff.may("clients:write"):
        return []

    def button(title: Text, name: str) -> Button:
        return Button(title, reverse(f"admin:{name}", args=[client.pk]))

    return [
        button(_("Edit"), "client_edit"),
        button(_("Deactivate"), "client_deactivate") if client.active else button(_("Activate"), "client_activate"),
        *([button(_("New secret"), "client_rotate")] if client.type == CONFIDENTIAL else []),
        *([] if client.is_default else [button(_("Delete"), "userflow_client_delete")]),
    ]


class CreateClient(ConfirmView):
    """Create a client; the secret of a confidential one is shown once."""

    permissions = ("clients:write",)
    action = Action.WRITE_CLIENT_SECRET
    title = _("Add client")
    text = _("An application of %(tenant)s. The secret of a confidential client is shown once, on the next page.")
    submit = _("Save")
    dangerous = False
    form_class = ClientForm

    tenant: Tenant
    created: Client
    secret: str | None

    def load(self) -> None:
        self.tenant = tenant_at(self.request)

    def names(self) -> Fields:
        return {"tenant": self.tenant.name}

    def get_back_url(self) -> str:
        return reverse(LIST)

    def act(self, fields: Fields) -> Text:
        self.created, self.secret = actions.create_client(tenant_id=self.tenant.pk, by=self.staff.principal, **fields)
        return _("The client is created.")

    def respond(self) -> HttpResponse:
        if self.secret is None:
            return show(self.request, self.created.pk)
        return secret_page(self.request, of=self.created.name, secret=self.secret, back=_page_of(self.created))


class ClientConfirmView(ConfirmView):
    """A page that changes one client of the chosen tenant."""

    permissions = ("clients:write",)
    client: Client

    def load(self) -> None:
        self.client = _find(self.request, self.kwargs["client_id"])

    def names(self) -> Fields:
        return {"name": self.client.name}

    def get_back_url(self) -> str:
        return _page_of(self.client)


class _FixedTypeForm(ClientForm):
    """The form of an existing client, whose type does not change."""

    type = None  # type: ignore[assignment]  # Django's way to leave an inherited field out


class EditClient(ClientConfirmView):
    """Change a client."""

    action = Action.GRANT_ROLES
    title = _("Edit %(name)s")
    text = _("The change applies from the next request of the application on.")
    submit = _("Save")
    dangerous = False
    form_class = _FixedTypeForm

    def get_initial(self) -> Fields:
        return {name: getattr(self.client, name) for name in _FIELDS}

    def act(self, fields: Fields) -> Text:
        initial = self.get_initial()
        changes = {name: fields[name] for name in _FIELDS if fields[name] != initial[name]}
        if changes:
            actions.update_client(
                tenant_id=self.client.tenant_id, client_id=self.client.pk, by=self.staff.principal, changes=changes
            )
        return _("The client is saved.")


class Activate(ClientConfirmView):
    """Activate a client."""

    title = _("Activate %(name)s")
    text = _("The application works again. Its users sign in again.")

    def act(self, fields: Fields) -> Text:
        actions.set_client_active(
            tenant_id=self.client.tenant_id, client_id=self.client.pk, by=self.staff.principal, active=True
        )
        return _("The client is active.")


class Deactivate(ClientConfirmView):
    """Deactivate a client."""

    action = Action.END_SESSIONS_OF_OTHERS
    title = _("Deactivate %(name)s")
    text = _(
        "No one can sign in through it, its tokens are revoked, and everyone who signed in through it is signed out."
    )

    def act(self, fields: Fields) -> Text:
        actions.set_client_active(
            tenant_id=self.client.tenant_id, client_id=self.client.pk, by=self.staff.principal, active=False
        )
        return _("The client is deactivated.")


class RotateSecret(ClientConfirmView):
    """Create a new secret and show it once."""

    action = Action.WRITE_CLIENT_SECRET
    title = _("New secret for %(name)s")
    text = _(
        "The new secret is shown once. Both secrets work until the current one expires, so nothing is interrupted."
    )
    submit = _("Create secret")
    form_class = OverlapForm

    secret: str

    def act(self, fields: Fields) -> Text:
        _client, self.secret = actions.rotate_client_secret(
            tenant_id=self.client.tenant_id,
            client_id=self.client.pk,
            by=self.staff.principal,
            overlap_seconds=fields["overlap_hours"] * 3600,
        )
        return _("The secret is shown on this page only. Store it where the application reads it.")

    def respond(self) -> HttpResponse:
        return secret_page(self.request, of=self.client.name, secret=self.secret, back=_page_of(self.client))


class DeleteClient(ClientConfirmView):
    """Delete a client."""

    action = Action.END_SESSIONS_OF_OTHERS
    title = _("Delete %(name)s")
    text = _("The application stops working and its tokens are revoked. Its users stay.")

    def act(self, fields: Fields) -> Text:
        actions.delete_client(tenant_id=self.client.tenant_id, client_id=self.client.pk, by=self.staff.principal)
        return _("The client is deleted.")

    def get_success_url(self) -> str:
        return reverse(LIST)

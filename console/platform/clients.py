"""One client of the chosen tenant: the record, and the pages that change it. A secret is shown once."""

from collections.abc import Sequence
from uuid import UUID

from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.frame.access import Staff, needs, staff_at
from console.frame.confirm import ChosenTenantConfirmView, CreateView, DeleteView, EditView, RowView, SecretView
from console.frame.records import NOTHING, Button, Cell, Text, Tone, buttons_to, moment, record_page
from console.frame.scope import tenant_at
from console.platform.client_configuration import configuration_of
from console.platform.forms import ClientChangesForm, ClientForm, OverlapForm
from identity_platform.api.views import Arguments
from tenants.issuers import issuer_at
from userflow.accounts.grant_types import grant_types_in_force
from userflow.accounts.models import CONFIDENTIAL, Client
from userflow.clients import actions
from userflow.sessions.assurance import Action
from userflow.sessions.client_authentication import NONE

LIST = "admin:userflow_client_changelist"
PAGE = "admin:userflow_client_change"


def _find(request: HttpRequest, client_id: UUID) -> Client:
    return actions.find_client(tenant_id=tenant_at(request).pk, client_id=client_id)


@needs("clients:read")
def show(request: HttpRequest, client_id: UUID) -> HttpResponse:
    """A client."""
    client = _find(request, client_id)
    facts = (
        (_("State"), Cell(_("active"), tone=Tone.GOOD) if client.active else Cell(_("deactivated"), tone=Tone.BAD)),
        (_("Client id"), Cell(client.pk, mono=True)),
        (_("Type"), Cell(client.type)),
        (_("Default client"), client.is_default),
        (_("Self-registration"), client.self_registration),
        (_("Scopes"), _list(client.scopes)),
        (_("Redirect URIs"), _list(client.redirect_uris)),
        (_("Redirect URIs after logout"), _list(client.post_logout_redirect_uris)),
        (_("Grant types"), _list(grant_types_in_force(client.grant_types, type_=client.type, scopes=client.scopes))),
        (_("Authenticates by"), Cell(_method(client))),
        (_("Keys"), Cell(client.jwks_uri or (len(client.jwks["keys"]) if client.jwks else NOTHING))),  # type: ignore[arg-type]  # checked when stored
        (_("Audiences"), _list(client.audiences)),
        (_("Allowed origins"), _list(client.allowed_origins)),
        (_("First-party"), client.first_party),
        (_("Requires pushed requests"), client.require_par),
        (_("Requires DPoP"), client.dpop_bound_access_tokens),
        (_("Logout address"), Cell(client.backchannel_logout_uri or NOTHING)),
        (_("Tags"), _list(client.tags)),
        (_("Previous secret expires"), Cell(moment(client.previous_secret_until))),
        (_("Last used"), Cell(moment(client.last_used_at))),
        (_("Created"), Cell(moment(client.created_at))),
    )
    return record_page(
        request,
        client.name,
        facts=facts,
        buttons=_buttons(staff_at(request), client),
        back=reverse(LIST),
        configuration=configuration_of(client, issuer_at(tenant_at(request).slug)),
        template="console/platform/client.html",
    )


def _list(entries: Sequence[str]) -> Cell:
    return Cell(", ".join(entries) or NOTHING)


def _method(client: Client) -> Text:
    if client.type != CONFIDENTIAL:
        return NONE
    return client.token_endpoint_auth_method or _("its secret, in either form")


def _buttons(staff: Staff, client: Client) -> list[Button]:
    if not staff.may("clients:write"):
        return []
    titles: dict[str, Text] = {"edit": _("Edit")}
    titles |= {"deactivate": _("Deactivate")} if client.active else {"activate": _("Activate")}
    if actions.has_secret(client):
        titles["rotate"] = _("Rotate secret")
    delete = [] if client.is_default else buttons_to("userflow_client", client.pk, delete=_("Delete"))
    return buttons_to("client", client.pk, **titles) + delete


class CreateClient(CreateView[Client], ChosenTenantConfirmView, SecretView[Client]):
    """Create a client; the secret of a confidential one is shown once."""

    permissions = ("clients:write",)
    page = PAGE
    list_page = LIST
    action = Action.WRITE_CLIENT_SECRET
    title = _("Add client")
    text = _("An application of %(tenant)s. The secret of a confidential client is shown once, on the next page.")
    form_class = ClientForm

    def act(self, form: Form) -> Text:
        self.row, self.secret = actions.create_client(
            tenant_id=self.tenant.pk, by=self.staff.principal, **form.cleaned_data
        )
        return _("The client is created.")


class ClientConfirmView(RowView[Client]):
    """A page that changes one client of the chosen tenant."""

    permissions = ("clients:write",)
    page = PAGE
    list_page = LIST

    def find(self) -> Client:
        return _find(self.request, self.kwargs["client_id"])


class EditClient(EditView[Client], ClientConfirmView):
    """Change a client."""

    action = Action.GRANT_ROLES
    title = _("Edit %(name)s")
    text = _("The change applies from the next request of the application on.")
    form_class = ClientChangesForm
    done = _("The client is saved.")

    def update(self, changes: Arguments) -> Text:
        actions.update_client(
            tenant_id=self.row.tenant_id, client_id=self.row.pk, by=self.staff.principal, changes=changes
        )
        return self.done


class Activate(ClientConfirmView):
    """Activate a client."""

    title = _("Activate %(name)s")
    text = _("The application works again. Its users sign in again.")

    def act(self, form: Form) -> Text:
        actions.set_client_active(
            tenant_id=self.row.tenant_id, client_id=self.row.pk, by=self.staff.principal, active=True
        )
        return _("The client is active.")


class Deactivate(ClientConfirmView):
    """Deactivate a client."""

    action = Action.END_SESSIONS_OF_OTHERS
    title = _("Deactivate %(name)s")
    text = _(
        "No one can sign in through it, its tokens are revoked, and everyone who signed in through it is signed out."
    )

    def act(self, form: Form) -> Text:
        actions.set_client_active(
            tenant_id=self.row.tenant_id, client_id=self.row.pk, by=self.staff.principal, active=False
        )
        return _("The client is deactivated.")


class RotateSecret(SecretView[Client], ClientConfirmView):
    """Create a new secret and show it once."""

    action = Action.WRITE_CLIENT_SECRET
    title = _("Rotate the secret of %(name)s")
    text = _(
        "The new secret is shown once. Both secrets work until the current one expires, so nothing is interrupted."
    )
    submit = _("Rotate secret")
    form_class = OverlapForm

    def act(self, form: Form) -> Text:
        _client, self.secret = actions.rotate_client_secret(
            tenant_id=self.row.tenant_id,
            client_id=self.row.pk,
            by=self.staff.principal,
            overlap_seconds=form.cleaned_data["overlap_hours"] * 3600,
        )
        return _("The secret is shown on this page only. Store it where the application reads it.")


class DeleteClient(DeleteView[Client], ClientConfirmView):
    """Delete a client."""

    action = Action.END_SESSIONS_OF_OTHERS
    title = _("Delete %(name)s")
    text = _("The application stops working and its tokens are revoked. Its users stay.")

    def act(self, form: Form) -> Text:
        actions.delete_client(tenant_id=self.row.tenant_id, client_id=self.row.pk, by=self.staff.principal)
        return _("The client is deleted.")

"""One client of the chosen tenant: the record, and the pages that change it. A secret is shown once."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import UUID

from django.db import InterfaceError, OperationalError
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame import labels
from console.frame.access import Context, Staff, needs, staff_at
from console.frame.confirm import ChosenTenantConfirmView, CreateView, DeleteView, EditView, RowView, SecretView
from console.frame.records import (
    Button,
    Cell,
    Table,
    Text,
    Tone,
    buttons_to,
    mono,
    never_stored,
    record_page,
    render_page,
)
from console.frame.scope import tenant_at
from console.frame.tenant_pages import reading_purpose
from console.platform.client_configuration import configuration_of
from console.platform.client_fields import KIND_LABELS
from console.platform.forms import ClientForm, NewClientForm, OverlapForm
from console.platform.webhooks import DELIVERY_TONES
from identity_platform.api.errors import ApiError
from tenants.addresses.issuers import issuer_of
from tenants.entering import lookup
from userflow.accounts.client_fields import CONFIDENTIAL
from userflow.accounts.grant_types import LABELS, grant_types_in_force
from userflow.accounts.models import Client
from userflow.clients import actions
from userflow.clients.kinds import KINDS, WEB, ClientKind, kind_of
from userflow.clients.registration import signs_in_directly
from userflow.events.models import DEAD, PENDING, WebhookMessage
from userflow.sessions.assurance import Action
from userflow.sessions.certificate_authentication import SUBJECT_FIELDS
from userflow.sessions.client_authentication import NONE
from userflow.webhooks.logout_tokens import list_deliveries, retry_deliveries

LOGOUTS_SHOWN: Final = 20
LIST = "admin:userflow_client_changelist"
PAGE = "admin:userflow_client_change"


def _find(request: HttpRequest, client_id: UUID) -> Client:
    return actions.find_client(tenant_id=tenant_at(request).pk, client_id=client_id)


@needs("clients:read")
def show(request: HttpRequest, client_id: UUID) -> HttpResponse:
    client = _find(request, client_id)
    facts = (
        (_("State"), Cell(_("active"), tone=Tone.GOOD) if client.active else Cell(_("deactivated"), tone=Tone.BAD)),
        (_("Client id"), mono(client.pk)),
        (_("Type"), client.type),
        (_("Default client"), client.is_default),
        (_("Self-registration"), client.self_registration),
        (_("Scopes"), client.scopes),
        (_("Redirect URIs"), client.redirect_uris),
        (_("Redirect URIs after logout"), client.post_logout_redirect_uris),
        (_("Grant types"), _grants(client)),
        (_("Authenticates by"), _method(client)),
        (_("Keys"), client.jwks_uri or (len(client.jwks["keys"]) if client.jwks else None)),  # type: ignore[arg-type]  # checked when stored
        (_("Audiences"), client.audiences),
        (_("Allowed origins"), client.allowed_origins),
        (_("First-party"), client.first_party),
        (_("Sign-in by JSON"), signs_in_directly(client)),
        (_("Requires pushed requests"), client.require_par),
        (_("Requires PKCE"), client.require_pkce),
        (_("Requires nonce without PKCE"), client.require_nonce),
        (_("Requires DPoP"), client.dpop_bound_access_tokens),
        (_("Tokens bound to the certificate"), client.tls_client_certificate_bound_access_tokens),
        (_("Subject of the certificate"), next(filter(None, (getattr(client, name) for name in SUBJECT_FIELDS)), None)),
        (_("Security profile"), client.security_profile or None),
        (_("Logout URL"), client.backchannel_logout_uri),
        (_("Tags"), client.tags),
        (_("Previous secret expires"), client.previous_secret_until),
        (_("Last used"), client.last_used_at),
        (_("Created"), client.created_at),
    )
    return record_page(
        request,
        client.name,
        facts=facts,
        buttons=_buttons(staff_at(request), client),
        back=reverse(LIST),
        tables=[_logout_tokens(request, client)] if client.backchannel_logout_uri else [],
        **_connection(client),
        template="console/platform/client.html",
    )


def _connection(client: Client, secret: str | None = None) -> Context:
    """Return what the application needs, for `console/platform/connection.html`."""
    issuer = issuer_of(lookup.find(client.tenant_id))
    return {
        "issuer": issuer,
        "client_id": client.pk,
        "secret": secret,
        "configuration": configuration_of(client, issuer, secret),
    }


@needs("clients:write")
def choose_kind(request: HttpRequest) -> HttpResponse:
    """Ask first what kind of application it is; each kind has a form with the fields that it needs."""
    tenant_at(request)
    kinds = [(reverse(f"admin:client_add_{name}"), *KIND_LABELS[name]) for name in KINDS]
    context: Context = {"kinds": kinds, "back": reverse(LIST)}
    return render_page(request, "console/platform/client_kinds.html", _("Add client"), context)


def _logout_tokens(request: HttpRequest, client: Client) -> Table:
    """The latest logout tokens; empty while the tenant's database cannot be read, for example during a move."""
    rows: Sequence[WebhookMessage] = ()
    with suppress(ApiError, OperationalError, InterfaceError):
        rows = list_deliveries(
            tenant_id=client.tenant_id, client_id=client.pk, limit=LOGOUTS_SHOWN, purpose=reading_purpose(request)
        )
    retry = buttons_to("client", client.pk, logouts=_("Retry")) if staff_at(request).may("clients:write") else []
    return Table(
        title=_("Logout tokens"),
        headers=(_("When"), _("User"), _("State"), _("Attempts"), _("Last response"), _("Next attempt")),
        rows=[
            (
                row.created_at,
                mono(row.subject_id),
                Cell(labels.state(row.status), tone=DELIVERY_TONES[row.status]),
                row.attempts,
                f"{row.last_status or ''} {row.last_error}".strip(),
                row.next_attempt_at if row.status == PENDING else None,
            )
            for row in rows
        ],
        buttons=retry if any(row.status in (PENDING, DEAD) for row in rows) else (),
        empty=_("No logout token has been sent yet. One is sent when a user's session ends."),
    )


def _grants(client: Client) -> list[str]:
    grant_types = grant_types_in_force(client.grant_types, type_=client.type, scopes=client.scopes)
    return [str(LABELS[name]) for name in grant_types]


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


class ClientView(ChosenTenantConfirmView):
    permissions = ("clients:write",)
    page = PAGE
    list_page = LIST


class ClientSecretView(SecretView[Client], ClientView):
    """A page after which the client is connected: it shows issuer, client id, the secret, once, and the configuration."""

    def respond(self) -> HttpResponse:
        page = record_page(
            self.request,
            self.row.name,
            facts=(),
            back=reverse(PAGE, args=[self.row.pk]),
            **_connection(self.row, self.secret),
            template="console/platform/client_ready.html",
        )
        return never_stored(page)


class CreateClient(CreateView[Client], ClientSecretView):
    """Add a client of the kind that `as_view` states."""

    kind: ClientKind = KINDS[WEB]
    action = Action.WRITE_CLIENT_SECRET
    title = _("Add client: %(kind)s")
    text = _("An application of %(tenant)s. The next page shows what it needs to sign in.")
    form_class = NewClientForm
    template_name = "console/platform/client_form.html"
    call = staticmethod(actions.create_client)
    done = _("The client is created.")

    def names(self) -> Context:
        label, _meaning = KIND_LABELS[self.kind.name]
        return {**super().names(), "kind": label}

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), "kind": self.kind}


class ClientConfirmView(RowView[Client], ClientView):
    key = "client_id"
    lookup = staticmethod(_find)


class EditClient(EditView[Client], ClientConfirmView):
    action = Action.GRANT_ROLES
    title = _("Edit %(name)s")
    text = _("The change applies from the next request of the application on.")
    form_class = ClientForm
    template_name = "console/platform/client_form.html"
    call = staticmethod(actions.update_client)
    done = _("The client is saved.")

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), "kind": kind_of(self.row)}


class Activate(ClientConfirmView):
    title = _("Activate %(name)s")
    text = _("The application works again. Its users sign in again.")
    call = staticmethod(partial(actions.set_client_active, active=True))
    done = _("The client is active.")


class Deactivate(ClientConfirmView):
    action = Action.END_SESSIONS_OF_OTHERS
    title = _("Deactivate %(name)s")
    text = _(
        "No one can sign in through it, its tokens are revoked, and everyone who signed in through it is signed out."
    )
    call = staticmethod(partial(actions.set_client_active, active=False))
    done = _("The client is deactivated.")


class RetryLogouts(ClientConfirmView):
    """Send the logout tokens again that the application has not taken."""

    title = _("Retry the logout tokens of %(name)s")
    text = _("Dead and pending logout tokens are signed again and sent to the current logout URL.")
    submit = _("Retry")
    dangerous = False

    def act(self, form: Form) -> Text:
        number = retry_deliveries(tenant_id=self.tenant.pk, client_id=self.row.pk)
        report = ngettext("%(number)d logout token is sent again.", "%(number)d logout tokens are sent again.", number)
        return report % {"number": number}


class RotateSecret(ClientSecretView, ClientConfirmView):
    # A second rotation from an older page would end the previous secret, which is still in use.
    guarded_fields = ("updated_at",)
    checks_locked_row = True
    action = Action.WRITE_CLIENT_SECRET
    title = _("Rotate the secret of %(name)s")
    text = _(
        "The new secret is shown once. Both secrets work until the current one expires, so nothing is interrupted."
    )
    submit = _("Rotate secret")
    form_class = OverlapForm
    call = staticmethod(actions.rotate_client_secret)
    done = _("The secret is shown on this page only. Store it where the application reads it.")


class DeleteClient(DeleteView[Client], ClientConfirmView):
    action = Action.END_SESSIONS_OF_OTHERS
    title = _("Delete %(name)s")
    text = _("The application stops working and its tokens are revoked. Its users stay.")
    call = staticmethod(actions.delete_client)
    done = _("The client is deleted.")

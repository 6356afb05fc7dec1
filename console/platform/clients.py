"""One client of the chosen tenant: the record, and everything that is done with it. Its secret is shown once."""

from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from console.frame.access import Staff, needs, staff_at
from console.frame.confirm import confirmed
from console.frame.lists import uuid_or_none
from console.frame.records import BAD, GOOD, NOTHING, Button, Cell, Record, moment, record_page, secret_page, yes_or_no
from console.frame.scope import tenant_at
from console.platform.forms import ClientForm, OverlapForm
from userflow.accounts.models import CONFIDENTIAL, Client
from userflow.clients import actions
from userflow.sessions.assurance import Action

LIST = "admin:userflow_client_changelist"
_MEMBERS = ("name", "redirect_uris", "scopes", "tags", "self_registration")


def _client(request: HttpRequest, client_id: UUID | str) -> Client:
    found = client_id if isinstance(client_id, UUID) else uuid_or_none(client_id)
    if found is None:
        raise Http404
    return actions.find_client(tenant_id=tenant_at(request).pk, client_id=found)


def _page_of(client: Client) -> str:
    return reverse("admin:userflow_client_change", args=[client.pk])


@needs("clients:read")
def show(request: HttpRequest, client_id: str) -> HttpResponse:
    """A client."""
    client = _client(request, client_id)
    facts = (
        (_("State"), Cell(_("active"), tone=GOOD) if client.active else Cell(_("switched off"), tone=BAD)),
        (_("Client id"), Cell(client.pk, mono=True)),
        (_("Type"), Cell(client.type)),
        (_("Default client"), yes_or_no(client.is_default)),
        (_("Self-registration"), yes_or_no(client.self_registration)),
        (_("Scopes"), Cell(", ".join(client.scopes) or NOTHING)),
        (_("Redirect URIs"), Cell(", ".join(client.redirect_uris) or NOTHING)),
        (_("Tags"), Cell(", ".join(client.tags) or NOTHING)),
        (_("Previous secret works until"), Cell(moment(client.previous_secret_until))),
        (_("Last used"), Cell(moment(client.last_used_at))),
        (_("Made"), Cell(moment(client.created_at))),
    )
    record = Record(title=client.name, facts=facts, buttons=_doings(staff_at(request), client), back=reverse(LIST))
    return record_page(request, record)


def _doings(staff: Staff, client: Client) -> list[Button]:
    if not staff.may("clients:write"):
        return []

    def button(title: str, name: str) -> Button:
        return Button(title, reverse(f"admin:{name}", args=[client.pk]))

    return [
        button(_("Edit"), "client_edit"),
        button(_("Switch off"), "client_deactivate") if client.active else button(_("Switch on"), "client_activate"),
        *([button(_("New secret"), "client_rotate")] if client.type == CONFIDENTIAL else []),
        *([] if client.is_default else [button(_("Delete"), "userflow_client_delete")]),
    ]


def _secret_page(request: HttpRequest, client: Client, secret: str) -> HttpResponse:
    return secret_page(request, of=client.name, secret=secret, back=_page_of(client))


@needs("clients:write")
def create(request: HttpRequest) -> HttpResponse:
    """Make a client; a confidential one's secret is shown once."""
    staff, tenant = staff_at(request), tenant_at(request)
    made: dict[str, Any] = {}

    def act(typed: dict[str, Any]) -> str:
        made["client"], made["secret"] = actions.create_client(tenant_id=tenant.pk, by=staff.principal, **typed)
        return _("The client is made.")

    def shown(_request: HttpRequest) -> HttpResponse:
        if made["secret"] is None:
            return show(request, str(made["client"].pk))
        return _secret_page(request, made["client"], made["secret"])

    return confirmed(
        request,
        title=_("Add client"),
        text=_("An application of %(tenant)s. The secret of a confidential one is shown once, on the next page.")
        % {"tenant": tenant.name},
        back=reverse(LIST),
        action=Action.WRITE_CLIENT_SECRET,
        act=act,
        form_class=ClientForm,
        submit=_("Save"),
        tenant=tenant,
        dangerous=False,
        shown=shown,
    )


@needs("clients:write")
def edit(request: HttpRequest, client_id: UUID) -> HttpResponse:
    """Change a client; its type stays."""
    staff = staff_at(request)
    client = _client(request, client_id)
    initial = {name: getattr(client, name) for name in _MEMBERS}

    def act(typed: dict[str, Any]) -> str:
        changes = {name: typed[name] for name in _MEMBERS if typed[name] != initial[name]}
        if changes:
            actions.update_client(tenant_id=client.tenant_id, client_id=client.pk, by=staff.principal, changes=changes)
        return _("The client is saved.")

    return confirmed(
        request,
        title=_("Edit %(name)s") % {"name": client.name},
        text=_("The application meets the change at its next call."),
        back=_page_of(client),
        action=Action.GRANT_ROLES,
        act=act,
        form_class=_FixedTypeForm,
        form_options={"initial": initial},
        submit=_("Save"),
        dangerous=False,
    )


class _FixedTypeForm(ClientForm):
    """Of a client that has its type."""

    type = None  # type: ignore[assignment]  # Django's way to leave an inherited field out


def _activity(request: HttpRequest, client_id: UUID, *, active: bool, title: str, text: str, done: str) -> HttpResponse:
    staff = staff_at(request)
    client = _client(request, client_id)

    def act(_typed: dict[str, Any]) -> str:
        actions.set_client_active(tenant_id=client.tenant_id, client_id=client.pk, by=staff.principal, active=active)
        return done

    return confirmed(
        request,
        title=title % {"name": client.name},
        text=text,
        back=_page_of(client),
        action=None if active else Action.END_SESSIONS_OF_OTHERS,
        act=act,
    )


@needs("clients:write")
def activate(request: HttpRequest, client_id: UUID) -> HttpResponse:
    """Switch a client on."""
    return _activity(
        request,
        client_id,
        active=True,
        title=_("Switch %(name)s on"),
        text=_("The application works again; whoever used it signs in anew."),
        done=_("The client is on."),
    )


@needs("clients:write")
def deactivate(request: HttpRequest, client_id: UUID) -> HttpResponse:
    """Switch a client off."""
    return _activity(
        request,
        client_id,
        active=False,
        title=_("Switch %(name)s off"),
        text=_("It signs nobody in, its tokens end for good, and everybody who is signed in through it is signed out."),
        done=_("The client is off."),
    )


@needs("clients:write")
def rotate(request: HttpRequest, client_id: UUID) -> HttpResponse:
    """A new secret, shown once."""
    staff = staff_at(request)
    client = _client(request, client_id)
    made: dict[str, str] = {}

    def act(typed: dict[str, Any]) -> str:
        _rotated, made["secret"] = actions.rotate_client_secret(
            tenant_id=client.tenant_id,
            client_id=client.pk,
            by=staff.principal,
            overlap_seconds=typed["overlap_hours"] * 3600,
        )
        return _("The secret is shown on this page only: put it where the application reads it.")

    return confirmed(
        request,
        title=_("New secret for %(name)s") % {"name": client.name},
        text=_(
            "The new secret is shown once. Two secrets work until the present one ends, so that nothing stands still."
        ),
        back=_page_of(client),
        action=Action.WRITE_CLIENT_SECRET,
        act=act,
        form_class=OverlapForm,
        submit=_("Make a new secret"),
        shown=lambda _request: _secret_page(request, client, made["secret"]),
    )


@needs("clients:write")
def delete(request: HttpRequest, client_id: str) -> HttpResponse:
    """Remove a client for good."""
    staff = staff_at(request)
    client = _client(request, client_id)

    def act(_typed: dict[str, Any]) -> str:
        actions.delete_client(tenant_id=client.tenant_id, client_id=client.pk, by=staff.principal)
        return _("The client is deleted.")

    return confirmed(
        request,
        title=_("Delete %(name)s") % {"name": client.name},
        text=_("The application stops working and its tokens end; its users stay."),
        back=_page_of(client),
        action=Action.END_SESSIONS_OF_OTHERS,
        act=act,
        onward=lambda: reverse(LIST),
    )

"""Webhook endpoints of the chosen tenant and their messages. Secrets are shown once."""

from typing import Final
from uuid import UUID

from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame import labels
from console.frame.access import Context, Staff, needs, staff_at
from console.frame.confirm import ChosenTenantConfirmView, CreateView, DeleteView, EditView, RowView, SecretView
from console.frame.records import Button, Cell, Table, Text, Tone, buttons_to, mono, record_page
from console.frame.scope import tenant_at
from console.frame.tenant_pages import reading_purpose
from console.platform.forms import EndpointChangesForm, EndpointForm, MessageSearch
from userflow.events.models import DEAD, DELIVERED, PENDING, WebhookEndpoint
from userflow.sessions.assurance import Action
from userflow.webhooks import actions

LIST: Final = "admin:webhooks"
PAGE: Final = "admin:webhook"
SHOWN: Final = 50
FILTERS: Final = (("", _("All")), (DEAD, _("Dead letters")), (PENDING, _("Pending")))
DELIVERY_TONES = {PENDING: Tone.PLAIN, DELIVERED: Tone.GOOD, DEAD: Tone.BAD}


def _find(request: HttpRequest, endpoint_id: UUID) -> WebhookEndpoint:
    return actions.find_endpoint(
        tenant_id=tenant_at(request).pk, endpoint_id=endpoint_id, purpose=reading_purpose(request)
    )


def _state(endpoint: WebhookEndpoint) -> Cell:
    if not endpoint.enabled:
        return Cell(_("disabled: %(reason)s") % {"reason": endpoint.disabled_reason or _("by an admin")}, tone=Tone.BAD)
    return Cell(_("failing"), tone=Tone.WARNING) if endpoint.failing_since else Cell(_("enabled"), tone=Tone.GOOD)


@needs("webhooks:read")
def listed(request: HttpRequest) -> HttpResponse:
    staff, tenant = staff_at(request), tenant_at(request)
    found = actions.list_endpoints(tenant_id=tenant.pk, purpose=reading_purpose(request))
    add = Button(_("Add endpoint"), reverse("admin:webhook_add"), "primary")
    table = Table(
        title=_("Endpoints"),
        headers=(_("Address"), _("Events"), _("State"), _("Failing since"), _("Last delivered")),
        rows=[
            (
                Cell(row.url, link=reverse(PAGE, args=[row.pk])),
                row.events,
                _state(row),
                row.failing_since,
                row.last_delivered_at,
            )
            for row in found
        ],
        buttons=[add] if staff.may("webhooks:write") else (),
        empty=_("No endpoint yet. Add one to send events to the systems of %(tenant)s.") % {"tenant": tenant.name},
    )
    return record_page(request, _("Webhooks"), tables=[table])


@needs("webhooks:read")
def show(request: HttpRequest, endpoint_id: UUID) -> HttpResponse:
    """One endpoint with its messages, page by page."""
    endpoint = _find(request, endpoint_id)
    facts = (
        (_("State"), _state(endpoint)),
        (_("Events"), endpoint.events),
        (_("Description"), endpoint.description),
        (_("Failing since"), endpoint.failing_since),
        (_("Last delivered"), endpoint.last_delivered_at),
        (_("Previous secret expires"), endpoint.previous_secret_until),
        (_("Created"), endpoint.created_at),
        (_("Id"), mono(endpoint.pk)),
    )
    tables = [_messages(request, endpoint)]
    buttons = _buttons(staff_at(request), endpoint)
    return record_page(request, endpoint.url, facts=facts, tables=tables, buttons=buttons, back=reverse(LIST))


def _messages(request: HttpRequest, endpoint: WebhookEndpoint) -> Table:
    search = MessageSearch(request.GET)
    search.is_valid()
    status, before = search.cleaned_data.get("status") or None, search.cleaned_data.get("before")
    rows, older = actions.list_messages(
        tenant_id=tenant_at(request).pk,
        endpoint_id=endpoint.pk,
        limit=SHOWN,
        status=status,
        before=before,
        purpose=reading_purpose(request),
    )
    only = f"&status={status}" if status else ""
    buttons = [Button(title, f"?status={name}" if name else "?") for name, title in FILTERS if name != (status or "")]
    headers = _("When"), _("Event"), _("State"), _("Attempts"), _("Last response"), _("Next attempt"), _("Message id")
    return Table(
        title=_("Messages: %(status)s") % {"status": status} if status else _("Messages"),
        headers=headers,
        rows=[_message(row) for row in rows],
        buttons=[*buttons, Button(_("Older"), f"?before={older}{only}")] if older else buttons,
        empty=_("No messages. Send a test to check whether the endpoint responds."),
    )


def _message(row: Context) -> tuple[object, ...]:
    status = str(row["status"])
    return (
        row["created_at"],
        row["event"],
        Cell(labels.state(status), tone=DELIVERY_TONES[status]),
        row["attempts"],
        f"{row['last_status'] or ''} {row['last_error']}".strip(),
        row["next_attempt_at"] if status == PENDING else None,
        mono(row["message_id"]),
    )


def _buttons(staff: Staff, endpoint: WebhookEndpoint) -> list[Button]:
    if not staff.may("webhooks:write"):
        return []
    titles: dict[str, Text] = {"edit": _("Edit")}
    if endpoint.enabled:
        titles |= {"test": _("Send test"), "replay": _("Replay")}
    return buttons_to("webhook", endpoint.pk, **titles, rotate=_("Rotate secret"), delete=_("Delete"))


class EndpointView(ChosenTenantConfirmView):
    permissions = ("webhooks:write",)
    page = PAGE
    list_page = LIST
    named_by = "url"


class EndpointConfirmView(RowView[WebhookEndpoint], EndpointView):
    key = "endpoint_id"
    lookup = staticmethod(_find)


class CreateEndpoint(CreateView[WebhookEndpoint], SecretView[WebhookEndpoint], EndpointView):
    action = Action.CHANGE_CONNECTIONS
    title = _("Add endpoint")
    text = _("Events of %(tenant)s are sent there, signed with a secret that the next page shows once.")
    form_class = EndpointForm
    call = staticmethod(actions.create_endpoint)
    done = _("The endpoint is created. Its secret is shown on this page only.")


class EditEndpoint(EditView[WebhookEndpoint], EndpointConfirmView):
    action = Action.CHANGE_CONNECTIONS
    title = _("Edit %(name)s")
    text = _("Pending messages are sent at once after a new address is set or the endpoint is enabled.")
    form_class = EndpointChangesForm
    call = staticmethod(actions.update_endpoint)
    done = _("The endpoint is saved.")


class RotateSecret(SecretView[WebhookEndpoint], EndpointConfirmView):
    action = Action.CHANGE_CONNECTIONS
    title = _("Rotate the secret of %(name)s")
    text = _("Messages are signed with both secrets for a while, so that the receiver can be updated meanwhile.")
    submit = _("Rotate secret")
    dangerous = False
    call = staticmethod(actions.rotate_secret)
    done = _("The secret is shown on this page only.")


class SendTest(EndpointConfirmView):
    title = _("Send a test event to %(name)s")
    text = _("The endpoint receives a webhook.test event, whichever events it subscribes to.")
    submit = _("Send test")
    dangerous = False

    def act(self, form: Form) -> Text:
        message_id = actions.send_test(tenant_id=self.tenant.pk, endpoint_id=self.row.pk)
        return _("The test is sent as %(id)s. Its delivery is listed below.") % {"id": message_id}


class Replay(EndpointConfirmView):
    title = _("Replay the dead letters of %(name)s")
    text = _("Dead letters are sent again in their order, each with its original id.")
    submit = _("Replay")
    dangerous = False

    def act(self, form: Form) -> Text:
        number, more = actions.replay(tenant_id=self.tenant.pk, endpoint_id=self.row.pk, status=DEAD)
        report = ngettext("%(number)d message is sent again.", "%(number)d messages are sent again.", number)
        return (report + (" " + _("There are more. Replay again.") if more else "")) % {"number": number}


class DeleteEndpoint(DeleteView[WebhookEndpoint], EndpointConfirmView):
    action = Action.CHANGE_CONNECTIONS
    title = _("Delete %(name)s")
    text = _("Nothing more is sent to it. Its pending messages are dropped.")
    submit = _("Delete")
    call = staticmethod(actions.delete_endpoint)
    done = _("The endpoint is deleted.")

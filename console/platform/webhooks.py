"""Webhook endpoints of the chosen tenant, their messages and the delivery log. Secrets are shown once."""

import json
from datetime import datetime
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame import labels
from console.frame.access import Context, Staff, needs, staff_at
from console.frame.confirm import ChosenTenantConfirmView, CreateView, DeleteView, EditView, RowView, SecretView
from console.frame.records import Button, Cell, Table, Text, Tone, buttons_to, mono, never_stored, record_page
from console.frame.scope import tenant_at
from console.frame.tenant_pages import reading_purpose, tenant_page
from console.platform.forms import EndpointChangesForm, EndpointForm, MessageSearch
from identity_platform.audit.writer import record_for_tenant
from tenants.models import Tenant
from userflow.events.models import ATTEMPTS_KEPT, DEAD, DELIVERED, PENDING, WebhookEndpoint, WebhookMessage
from userflow.sessions.assurance import Action
from userflow.webhooks import actions
from userflow.webhooks.delivery import AGENT, CONTENT_TYPE

LIST: Final = "admin:webhooks"
PAGE: Final = "admin:webhook"
MESSAGE_PAGE: Final = "admin:webhook_message"
SHOWN: Final = 50
PAYLOAD_PERMISSION: Final = "endusers:read"
DELIVERY_TONES = {PENDING: Tone.PLAIN, DELIVERED: Tone.GOOD, DEAD: Tone.BAD}


def _find(request: HttpRequest, endpoint_id: UUID) -> WebhookEndpoint:
    return actions.find_endpoint(
        tenant_id=tenant_at(request).pk, endpoint_id=endpoint_id, purpose=reading_purpose(request)
    )


def _find_message(request: HttpRequest, endpoint_id: UUID, position: int) -> tuple[WebhookEndpoint, WebhookMessage]:
    return actions.find_message(
        tenant_id=tenant_at(request).pk,
        endpoint_id=endpoint_id,
        position=position,
        purpose=reading_purpose(request),
    )


def _state(endpoint: WebhookEndpoint) -> Cell:
    if not endpoint.enabled:
        return Cell(_("disabled: %(reason)s") % {"reason": endpoint.disabled_reason or _("by an admin")}, tone=Tone.BAD)
    return Cell(_("failing"), tone=Tone.WARNING) if endpoint.failing_since else Cell(_("enabled"), tone=Tone.GOOD)


@needs("webhooks:read")
def listed(request: HttpRequest) -> HttpResponse:
    staff, tenant = staff_at(request), tenant_at(request)
    endpoints = actions.list_endpoints(tenant_id=tenant.pk, purpose=reading_purpose(request))
    add = Button(_("Add endpoint"), reverse("admin:webhook_add"), "primary")
    table = Table(
        title=_("Endpoints"),
        headers=(_("URL"), _("Events"), _("State"), _("Failing since"), _("Last delivered")),
        rows=[
            (
                Cell(row.url, link=reverse(PAGE, args=[row.pk])),
                row.events,
                _state(row),
                row.failing_since,
                row.last_delivered_at,
            )
            for row in endpoints
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
    search = MessageSearch(request.GET)
    search.is_valid()
    return record_page(
        request,
        endpoint.url,
        facts=facts,
        buttons=_buttons(staff_at(request), endpoint),
        back=reverse(LIST),
        template="console/platform/webhook.html",
        search=search,
        filtered=bool(search.filters()),
        table=_messages(request, endpoint, search),
    )


def _messages(request: HttpRequest, endpoint: WebhookEndpoint, search: MessageSearch) -> Table:
    rows, older = actions.list_messages(
        tenant_id=tenant_at(request).pk,
        endpoint_id=endpoint.pk,
        limit=SHOWN,
        before=search.cleaned_data.get("before"),
        purpose=reading_purpose(request),
        **search.filters(),
    )
    headers = _("When"), _("Event"), _("State"), _("Attempts"), _("Last response"), _("Next attempt"), _("Message id")
    return Table(
        title=_("Messages"),
        headers=headers,
        rows=[_message(endpoint, row) for row in rows],
        buttons=[Button(_("Older"), f"?{urlencode({**search.filters(), 'before': older})}")] if older else [],
        empty=_("No message matches the filters.")
        if search.filters()
        else _("No messages. Send a test to check whether the endpoint responds."),
        note=_("A search by event looks at the newest %(most)d messages.") % {"most": actions.SEARCHED}
        if "event" in search.filters()
        else "",
    )


def _message(endpoint: WebhookEndpoint, row: Context) -> tuple[object, ...]:
    status = str(row["status"])
    return (
        row["created_at"],
        Cell(row["event"], link=reverse(MESSAGE_PAGE, args=[endpoint.pk, row["id"]])),
        Cell(labels.state(status), tone=DELIVERY_TONES[status]),
        row["attempts"],
        f"{row['last_status'] or ''} {row['last_error']}".strip(),
        row["next_attempt_at"] if status == PENDING else None,
        mono(row["message_id"]),
    )


@tenant_page("webhooks:read")
def show_message(request: HttpRequest, tenant: Tenant, endpoint_id: UUID, position: int) -> HttpResponse:
    """One message with its payload and its delivery log. The view is audited."""
    endpoint, message = _find_message(request, endpoint_id, position)
    record_for_tenant(
        "webhook.message_viewed",
        target=("webhook_endpoint", endpoint.pk),
        details={"console": True, "message_id": message.message_id},
    )
    staff = staff_at(request)
    # The payload and the responses have data of users, which webhooks:read alone does not show.
    sees_data = staff.may(PAYLOAD_PERMISSION)
    replay = Button(_("Replay"), reverse(f"{MESSAGE_PAGE}_replay", args=[endpoint.pk, message.pk]), "primary")
    page = record_page(
        request,
        message.event,
        facts=_message_facts(endpoint, message),
        tables=[_headers_of(message), _attempts(message, sees_data)],
        buttons=[replay] if staff.may("webhooks:write") and endpoint.enabled else [],
        back=reverse(PAGE, args=[endpoint.pk]),
        template="console/platform/webhook_message.html",
        payload=json.dumps(json.loads(message.body), indent=2, ensure_ascii=False) if sees_data else "",
        hidden=_hidden(),
    )
    return never_stored(page)


def _hidden() -> str:
    return _("Needs the permission %(permission)s.") % {"permission": PAYLOAD_PERMISSION}


def _message_facts(endpoint: WebhookEndpoint, message: WebhookMessage) -> tuple[tuple[Text, object], ...]:
    return (
        (_("State"), Cell(labels.state(message.status), tone=DELIVERY_TONES[message.status])),
        (_("Endpoint"), Cell(endpoint.url, link=reverse(PAGE, args=[endpoint.pk]))),
        (_("Message id"), mono(message.message_id)),
        (_("Created"), message.created_at),
        (_("Attempts"), message.attempts),
        (_("Next attempt"), message.next_attempt_at if message.status == PENDING else None),
        (_("Delivered or given up"), message.settled_at),
    )


def _headers_of(message: WebhookMessage) -> Table:
    computed = _("computed at each attempt")
    return Table(
        title=_("Headers"),
        headers=(_("Header"), _("Value")),
        rows=[
            (mono("webhook-id"), mono(message.message_id)),
            (mono("webhook-timestamp"), computed),
            (mono("webhook-signature"), computed),
            (mono("Content-Type"), mono(CONTENT_TYPE)),
            (mono("User-Agent"), mono(AGENT)),
        ],
        empty="",
    )


def _attempts(message: WebhookMessage, sees_data: bool) -> Table:
    return Table(
        title=_("Delivery log"),
        headers=(_("When"), _("Status"), _("Duration"), _("Error"), _("Response")),
        rows=[
            (
                datetime.fromisoformat(each["at"]),
                each["status"],
                _("%(number)d ms") % {"number": each["milliseconds"]},
                each["error"],
                mono(each["response"]) if sees_data or not each["response"] else _hidden(),
            )
            for each in reversed(message.attempt_log)
        ],
        empty=_("No attempt yet, or the attempts were made before the platform kept a log."),
        note=_("The newest %(most)d attempts are kept, with the beginning of each response.") % {"most": ATTEMPTS_KEPT},
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
    text = _("Pending messages are sent at once after a new URL is set or the endpoint is enabled.")
    form_class = EndpointChangesForm
    call = staticmethod(actions.update_endpoint)
    done = _("The endpoint is saved.")


class RotateSecret(SecretView[WebhookEndpoint], EndpointConfirmView):
    guarded_fields = ("updated_at",)
    checks_locked_row = True
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
        number, more = actions.replay(**self.arguments(), status=DEAD)
        report = ngettext("%(number)d message is sent again.", "%(number)d messages are sent again.", number)
        return (report + (" " + _("There are more. Replay again.") if more else "")) % {"number": number}


class ReplayMessage(EndpointConfirmView):
    """Replay one message, by the action behind `POST …/replay` with its id alone."""

    title = _("Replay %(event)s")
    text = _("The message is sent to %(name)s again, with its original id and before newer ones.")
    submit = _("Replay")
    dangerous = False

    def load(self) -> None:
        super().load()
        _endpoint, self.message = _find_message(self.request, self.row.pk, self.kwargs["position"])

    def names(self) -> Context:
        return {**super().names(), "event": self.message.event}

    def get_back_url(self) -> str:
        return reverse(MESSAGE_PAGE, args=[self.row.pk, self.message.pk])

    def act(self, form: Form) -> Text:
        number, _more = actions.replay(**self.arguments(), message_ids=[self.message.message_id])
        return _("The message is sent again.") if number else _("The message is waiting to be sent already.")


class DeleteEndpoint(DeleteView[WebhookEndpoint], EndpointConfirmView):
    action = Action.CHANGE_CONNECTIONS
    title = _("Delete %(name)s")
    text = _("Nothing more is sent to it. Its pending messages are dropped.")
    submit = _("Delete")
    call = staticmethod(actions.delete_endpoint)
    done = _("The endpoint is deleted.")

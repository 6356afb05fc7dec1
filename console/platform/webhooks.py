"""Webhook endpoints of the chosen tenant and their messages. Secrets are shown once."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame import labels
from console.frame.access import Staff, needs, staff_at
from console.frame.confirm import ChosenTenantConfirmView
from console.frame.forms import Fields
from console.frame.records import (
    BAD,
    GOOD,
    MIND,
    NOTHING,
    PLAIN,
    Button,
    Cell,
    Record,
    Table,
    Text,
    moment,
    record_page,
    secret_page,
)
from console.frame.scope import tenant_at
from console.frame.tenant_pages import reading_purpose
from console.platform.forms import EndpointChangesForm, EndpointForm, MessageSearch
from userflow.events.models import DEAD, DELIVERED, PENDING, WebhookEndpoint
from userflow.sessions.assurance import Action
from userflow.webhooks import actions

SHOWN = 50
_TONES = {PENDING: PLAIN, DELIVERED: GOOD, DEAD: BAD}


def _find(request: HttpRequest, endpoint_id: UUID) -> WebhookEndpoint:
    return actions.find_endpoint(
        tenant_id=tenant_at(request).pk, endpoint_id=endpoint_id, purpose=reading_purpose(request)
    )


def _page_of(endpoint: WebhookEndpoint) -> str:
    return reverse("admin:webhook", args=[endpoint.pk])


def _state(endpoint: WebhookEndpoint) -> Cell:
    if not endpoint.enabled:
        return Cell(_("disabled: %(reason)s") % {"reason": endpoint.disabled_reason or _("by an admin")}, tone=BAD)
    return Cell(_("failing"), tone=MIND) if endpoint.failing_since else Cell(_("enabled"), tone=GOOD)


@needs("webhooks:read")
def listed(request: HttpRequest) -> HttpResponse:
    """The endpoints of the tenant."""
    staff, tenant = staff_at(request), tenant_at(request)
    found = actions.list_endpoints(tenant_id=tenant.pk, purpose=reading_purpose(request))
    add = Button(_("Add endpoint"), reverse("admin:webhook_add"), "primary")
    table = Table(
        title=_("Endpoints"),
        headers=(_("Address"), _("Events"), _("State"), _("Failing since"), _("Last delivered")),
        rows=[
            (
                Cell(row.url, link=_page_of(row)),
                Cell(", ".join(row.events)),
                _state(row),
                Cell(moment(row.failing_since)),
                Cell(moment(row.last_delivered_at)),
            )
            for row in found
        ],
        buttons=[add] if staff.may("webhooks:write") else (),
        empty=_("No endpoint yet. Add one to send events to the systems of %(tenant)s.") % {"tenant": tenant.name},
    )
    return record_page(request, Record(title=_("Webhooks"), tables=[table]))


@needs("webhooks:read")
def show(request: HttpRequest, endpoint_id: UUID) -> HttpResponse:
    """One endpoint with its messages, page by page."""
    staff, tenant = staff_at(request), tenant_at(request)
    endpoint = _find(request, endpoint_id)
    search = MessageSearch(request.GET)
    search.is_valid()
    status, before = search.cleaned_data.get("status") or None, search.cleaned_data.get("before")
    rows, older = actions.list_messages(
        tenant_id=tenant.pk,
        endpoint_id=endpoint.pk,
        limit=SHOWN,
        status=status,
        before=before,
        purpose=reading_purpose(request),
    )
    facts = (
        (_("State"), _state(endpoint)),
        (_("Events"), Cell(", ".join(endpoint.events))),
        (_("Description"), Cell(endpoint.description or NOTHING)),
        (_("Failing since"), Cell(moment(endpoint.failing_since))),
        (_("Last delivered"), Cell(moment(endpoint.last_delivered_at))),
        (_("Previous secret signs until"), Cell(moment(endpoint.previous_secret_until))),
        (_("Created"), Cell(moment(endpoint.created_at))),
        (_("Id"), Cell(endpoint.pk, mono=True)),
    )
    only = f"&status={status}" if status else ""
    buttons = [
        *(Button(title, f"?status={name}" if name else "?") for name, title in _filters() if name != (status or "")),
        *([Button(_("Older"), f"?before={older}{only}")] if older else []),
    ]
    messages = Table(
        title=_("Messages: %(status)s") % {"status": status} if status else _("Messages"),
        headers=(
            _("When"),
            _("Event"),
            _("State"),
            _("Attempts"),
            _("Last response"),
            _("Next attempt"),
            _("Message id"),
        ),
        rows=[_message(row) for row in rows],
        buttons=buttons,
        empty=_("No messages. Send a test to check whether the endpoint responds."),
    )
    return record_page(
        request,
        Record(
            title=endpoint.url,
            facts=facts,
            tables=[messages],
            buttons=_buttons(staff, endpoint),
            back=reverse("admin:webhooks"),
        ),
    )


def _filters() -> list[tuple[str, Text]]:
    return [("", _("All")), (DEAD, _("Dead letters")), (PENDING, _("Pending"))]


def _message(row: Fields) -> tuple[Cell, ...]:
    response = f"{row['last_status'] or ''} {row['last_error']}".strip()
    return (
        Cell(moment(row["created_at"])),
        Cell(row["event"]),
        Cell(labels.state(row["status"]), tone=_TONES[row["status"]]),
        Cell(row["attempts"]),
        Cell(response or NOTHING),
        Cell(moment(row["next_attempt_at"]) if row["status"] == PENDING else NOTHING),
        Cell(row["message_id"], mono=True),
    )


def _buttons(staff: Staff, endpoint: WebhookEndpoint) -> list[Button]:
    if not staff.may("webhooks:write"):
        return []

    def button(title: Text, name: str) -> Button:
        return Button(title, reverse(f"admin:webhook_{name}", args=[endpoint.pk]))

    return [
        button(_("Edit"), "edit"),
        *([button(_("Send a test"), "test"), button(_("Replay"), "replay")] if endpoint.enabled else []),
        button(_("New secret"), "rotate"),
        button(_("Delete"), "delete"),
    ]


class EndpointConfirmView(ChosenTenantConfirmView):
    """A page that changes one endpoint."""

    permissions = ("webhooks:write",)
    endpoint: WebhookEndpoint

    def load(self) -> None:
        super().load()
        self.endpoint = _find(self.request, self.kwargs["endpoint_id"])

    def names(self) -> Fields:
        return {"name": self.endpoint.url}

    def get_back_url(self) -> str:
        return _page_of(self.endpoint)


class CreateEndpoint(ChosenTenantConfirmView):
    """Create an endpoint; its secret is shown once."""

    permissions = ("webhooks:write",)
    action = Action.CHANGE_CONNECTIONS
    title = _("Add endpoint")
    text = _("Events of %(tenant)s are sent there, signed with a secret that the next page shows once.")
    submit = _("Save")
    dangerous = False
    form_class = EndpointForm

    created: WebhookEndpoint
    secret: str

    def names(self) -> Fields:
        return {"tenant": self.tenant.name}

    def get_back_url(self) -> str:
        return reverse("admin:webhooks")

    def act(self, fields: Fields) -> Text:
        self.created, self.secret = actions.create_endpoint(tenant_id=self.tenant.pk, by=self.staff.principal, **fields)
        return _("The endpoint is created. Its secret is shown on this page only.")

    def respond(self) -> HttpResponse:
        return secret_page(self.request, of=self.created.url, secret=self.secret, back=_page_of(self.created))


class EditEndpoint(EndpointConfirmView):
    """Change, disable or enable an endpoint."""

    action = Action.CHANGE_CONNECTIONS
    title = _("Edit %(name)s")
    text = _("Pending messages are sent at once after a new address is set or the endpoint is enabled.")
    submit = _("Save")
    dangerous = False
    form_class = EndpointChangesForm

    def get_initial(self) -> Fields:
        return {name: getattr(self.endpoint, name) for name in EndpointChangesForm.base_fields}

    def act(self, fields: Fields) -> Text:
        initial = self.get_initial()
        changes = {name: value for name, value in fields.items() if value != initial[name]}
        if changes:
            actions.update_endpoint(
                tenant_id=self.tenant.pk, endpoint_id=self.endpoint.pk, changes=changes, by=self.staff.principal
            )
        return _("The endpoint is saved.")


class RotateSecret(EndpointConfirmView):
    """Create a new secret and show it once; the current one signs beside it for a while."""

    action = Action.CHANGE_CONNECTIONS
    title = _("New secret for %(name)s")
    text = _("Messages are signed with both secrets for a while, so that the receiver can be updated meanwhile.")
    submit = _("Create secret")
    dangerous = False

    secret: str

    def act(self, fields: Fields) -> Text:
        _endpoint, self.secret = actions.rotate_secret(
            tenant_id=self.tenant.pk, endpoint_id=self.endpoint.pk, by=self.staff.principal
        )
        return _("The secret is shown on this page only.")

    def respond(self) -> HttpResponse:
        return secret_page(self.request, of=self.endpoint.url, secret=self.secret, back=_page_of(self.endpoint))


class SendTest(EndpointConfirmView):
    """Send a test event to this endpoint only."""

    title = _("Send a test to %(name)s")
    text = _("The endpoint receives a webhook.test event, whichever events it subscribes to.")
    submit = _("Send a test")
    dangerous = False

    def act(self, fields: Fields) -> Text:
        message_id = actions.send_test(tenant_id=self.tenant.pk, endpoint_id=self.endpoint.pk)
        return _("The test is sent as %(id)s. Its delivery is listed below.") % {"id": message_id}


class Replay(EndpointConfirmView):
    """Send the dead letters again."""

    title = _("Replay the dead letters of %(name)s")
    text = _("Dead letters are sent again in their order, each with its original id.")
    submit = _("Replay")
    dangerous = False

    def act(self, fields: Fields) -> Text:
        number, more = actions.replay(tenant_id=self.tenant.pk, endpoint_id=self.endpoint.pk, status=DEAD)
        report = ngettext("%(number)d message is sent again.", "%(number)d messages are sent again.", number)
        return (report + (" " + _("There are more. Replay again.") if more else "")) % {"number": number}


class DeleteEndpoint(EndpointConfirmView):
    """Delete an endpoint."""

    action = Action.CHANGE_CONNECTIONS
    title = _("Delete %(name)s")
    text = _("Nothing more is sent to it. Its pending messages are dropped.")
    submit = _("Delete")

    def act(self, fields: Fields) -> Text:
        actions.delete_endpoint(tenant_id=self.tenant.pk, endpoint_id=self.endpoint.pk, by=self.staff.principal)
        return _("The endpoint is deleted.")

    def get_success_url(self) -> str:
        return reverse("admin:webhooks")

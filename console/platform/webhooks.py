"""Webhook endpoints of the chosen tenant: what they hear, what reached them and what did not. Secrets are shown once."""

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.frame import labels
from console.frame.access import Staff, needs, staff_at
from console.frame.confirm import confirmed
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
    moment,
    record_page,
    secret_page,
)
from console.frame.scope import tenant_at
from console.frame.tenant_pages import looking
from console.platform.forms import EndpointChangesForm, EndpointForm, MessageSearch
from userflow.events.models import DEAD, DELIVERED, PENDING, WebhookEndpoint
from userflow.sessions.assurance import Action
from userflow.webhooks import actions

SHOWN = 50
_TONES = {PENDING: PLAIN, DELIVERED: GOOD, DEAD: BAD}


def _endpoint(request: HttpRequest, endpoint_id: UUID) -> WebhookEndpoint:
    return actions.find_endpoint(tenant_id=tenant_at(request).pk, endpoint_id=endpoint_id, purpose=looking(request))


def _page_of(endpoint: WebhookEndpoint) -> str:
    return reverse("admin:webhook", args=[endpoint.pk])


def _state(endpoint: WebhookEndpoint) -> Cell:
    if not endpoint.enabled:
        return Cell(_("off: %(reason)s") % {"reason": endpoint.disabled_reason or _("by an admin")}, tone=BAD)
    return Cell(_("failing"), tone=MIND) if endpoint.failing_since else Cell(_("on"), tone=GOOD)


@needs("webhooks:read")
def listed(request: HttpRequest) -> HttpResponse:
    """The endpoints of the tenant."""
    staff, tenant = staff_at(request), tenant_at(request)
    found = actions.list_endpoints(tenant_id=tenant.pk, purpose=looking(request))
    add = Button(_("Add endpoint"), reverse("admin:webhook_add"), "primary")
    table = Table(
        title=_("Endpoints"),
        headers=(_("Address"), _("Hears"), _("State"), _("Failing since"), _("Last delivered")),
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
        empty=_("No endpoint yet. Add one, and %(tenant)s's own systems hear of events.") % {"tenant": tenant.name},
    )
    return record_page(request, Record(title=_("Webhooks"), tables=[table]))


@needs("webhooks:read")
def show(request: HttpRequest, endpoint_id: UUID) -> HttpResponse:
    """One endpoint with its messages, page by page."""
    staff, tenant = staff_at(request), tenant_at(request)
    endpoint = _endpoint(request, endpoint_id)
    asked = MessageSearch(request.GET)
    asked.is_valid()
    status, before = asked.cleaned_data.get("status") or None, asked.cleaned_data.get("before")
    rows, onward = actions.list_messages(
        tenant_id=tenant.pk,
        endpoint_id=endpoint.pk,
        limit=SHOWN,
        status=status,
        before=before,
        purpose=looking(request),
    )
    facts = (
        (_("State"), _state(endpoint)),
        (_("Hears"), Cell(", ".join(endpoint.events))),
        (_("Description"), Cell(endpoint.description or NOTHING)),
        (_("Failing since"), Cell(moment(endpoint.failing_since))),
        (_("Last delivered"), Cell(moment(endpoint.last_delivered_at))),
        (_("Previous secret signs until"), Cell(moment(endpoint.previous_secret_until))),
        (_("Made"), Cell(moment(endpoint.created_at))),
        (_("Id"), Cell(endpoint.pk, mono=True)),
    )
    only = f"&status={status}" if status else ""
    buttons = [
        *(Button(title, f"?status={name}" if name else "?") for name, title in _filters() if name != (status or "")),
        *([Button(_("Older"), f"?before={onward}{only}")] if onward else []),
    ]
    messages = Table(
        title=_("Messages: %(status)s") % {"status": status} if status else _("Messages"),
        headers=(_("When"), _("Event"), _("State"), _("Tries"), _("Last answer"), _("Next try"), _("Message id")),
        rows=[_message(row) for row in rows],
        buttons=buttons,
        empty=_("No message here. Send a test to see whether the endpoint answers."),
    )
    return record_page(
        request,
        Record(
            title=endpoint.url,
            facts=facts,
            tables=[messages],
            buttons=_doings(staff, endpoint),
            back=reverse("admin:webhooks"),
        ),
    )


def _filters() -> list[tuple[str, str]]:
    return [("", _("All")), (DEAD, _("Dead letters")), (PENDING, _("Waiting"))]


def _message(row: dict[str, Any]) -> tuple[Cell, ...]:
    answer = f"{row['last_status'] or ''} {row['last_error']}".strip()
    return (
        Cell(moment(row["created_at"])),
        Cell(row["event"]),
        Cell(labels.state(row["status"]), tone=_TONES[row["status"]]),
        Cell(row["attempts"]),
        Cell(answer or NOTHING),
        Cell(moment(row["next_attempt_at"]) if row["status"] == PENDING else NOTHING),
        Cell(row["message_id"], mono=True),
    )


def _doings(staff: Staff, endpoint: WebhookEndpoint) -> list[Button]:
    if not staff.may("webhooks:write"):
        return []

    def button(title: str, name: str) -> Button:
        return Button(title, reverse(f"admin:webhook_{name}", args=[endpoint.pk]))

    return [
        button(_("Edit"), "edit"),
        *([button(_("Send a test"), "test"), button(_("Replay"), "replay")] if endpoint.enabled else []),
        button(_("New secret"), "rotate"),
        button(_("Delete"), "delete"),
    ]


def _secret_page(request: HttpRequest, endpoint: WebhookEndpoint, secret: str) -> HttpResponse:
    return secret_page(request, of=endpoint.url, secret=secret, back=_page_of(endpoint))


@needs("webhooks:write")
def create(request: HttpRequest) -> HttpResponse:
    """Make an endpoint; its secret is shown once."""
    tenant = tenant_at(request)
    made: dict[str, Any] = {}

    def act(typed: dict[str, Any]) -> str:
        made["endpoint"], made["secret"] = actions.create_endpoint(
            tenant_id=tenant.pk, by=staff_at(request).principal, **typed
        )
        return _("The endpoint is made. Its secret is shown on this page only.")

    return confirmed(
        request,
        title=_("Add endpoint"),
        text=_("Events of %(tenant)s are sent there, signed with a secret that the next page shows once.")
        % {"tenant": tenant.name},
        back=reverse("admin:webhooks"),
        action=Action.CHANGE_CONNECTIONS,
        act=act,
        form_class=EndpointForm,
        submit=_("Save"),
        dangerous=False,
        tenant=tenant,
        shown=lambda _request: _secret_page(request, made["endpoint"], made["secret"]),
    )


@needs("webhooks:write")
def edit(request: HttpRequest, endpoint_id: UUID) -> HttpResponse:
    """Change an endpoint, or switch it off and on."""
    tenant = tenant_at(request)
    endpoint = _endpoint(request, endpoint_id)
    initial = {name: getattr(endpoint, name) for name in EndpointChangesForm.base_fields}

    def act(typed: dict[str, Any]) -> str:
        changes = {name: value for name, value in typed.items() if value != initial[name]}
        if changes:
            actions.update_endpoint(
                tenant_id=tenant.pk, endpoint_id=endpoint.pk, changes=changes, by=staff_at(request).principal
            )
        return _("The endpoint is saved.")

    return confirmed(
        request,
        title=_("Edit %(name)s") % {"name": endpoint.url},
        text=_("A new address, or switching it on, has what waits tried at once."),
        back=_page_of(endpoint),
        action=Action.CHANGE_CONNECTIONS,
        act=act,
        form_class=EndpointChangesForm,
        form_options={"initial": initial},
        submit=_("Save"),
        dangerous=False,
        tenant=tenant,
    )


@needs("webhooks:write")
def rotate(request: HttpRequest, endpoint_id: UUID) -> HttpResponse:
    """A new secret, shown once; the present one signs beside it for a while."""
    tenant = tenant_at(request)
    endpoint = _endpoint(request, endpoint_id)
    made: dict[str, str] = {}

    def act(_typed: dict[str, Any]) -> str:
        _rotated, made["secret"] = actions.rotate_secret(
            tenant_id=tenant.pk, endpoint_id=endpoint.pk, by=staff_at(request).principal
        )
        return _("The secret is shown on this page only.")

    return confirmed(
        request,
        title=_("New secret for %(name)s") % {"name": endpoint.url},
        text=_("Messages are signed with both secrets for a while, so that the receiver can be changed in peace."),
        back=_page_of(endpoint),
        action=Action.CHANGE_CONNECTIONS,
        act=act,
        submit=_("Make a new secret"),
        dangerous=False,
        tenant=tenant,
        shown=lambda _request: _secret_page(request, endpoint, made["secret"]),
    )


@needs("webhooks:write")
def test(request: HttpRequest, endpoint_id: UUID) -> HttpResponse:
    """Send an event to this endpoint alone."""
    tenant = tenant_at(request)
    endpoint = _endpoint(request, endpoint_id)

    def act(_typed: dict[str, Any]) -> str:
        message_id = actions.send_test(tenant_id=tenant.pk, endpoint_id=endpoint.pk)
        return _("The test is on its way as %(id)s: look at it below.") % {"id": message_id}

    return confirmed(
        request,
        title=_("Send a test to %(name)s") % {"name": endpoint.url},
        text=_("The endpoint gets a webhook.test event, whatever it listens to."),
        back=_page_of(endpoint),
        action=None,
        act=act,
        submit=_("Send a test"),
        tenant=tenant,
        dangerous=False,
    )


@needs("webhooks:write")
def replay(request: HttpRequest, endpoint_id: UUID) -> HttpResponse:
    """Send the dead letters again."""
    tenant = tenant_at(request)
    endpoint = _endpoint(request, endpoint_id)

    def act(_typed: dict[str, Any]) -> str:
        number, more = actions.replay(tenant_id=tenant.pk, endpoint_id=endpoint.pk, status=DEAD)
        report = ngettext("%(number)d message goes out again.", "%(number)d messages go out again.", number)
        return (report + (" " + _("There are more: replay once again.") if more else "")) % {"number": number}

    return confirmed(
        request,
        title=_("Replay the dead letters of %(name)s") % {"name": endpoint.url},
        text=_("Messages that were given up go out again in their order, each under the id that it had."),
        back=_page_of(endpoint),
        action=None,
        act=act,
        submit=_("Replay"),
        tenant=tenant,
        dangerous=False,
    )


@needs("webhooks:write")
def delete(request: HttpRequest, endpoint_id: UUID) -> HttpResponse:
    """Remove an endpoint."""
    tenant = tenant_at(request)
    endpoint = _endpoint(request, endpoint_id)

    def act(_typed: dict[str, Any]) -> str:
        actions.delete_endpoint(tenant_id=tenant.pk, endpoint_id=endpoint.pk, by=staff_at(request).principal)
        return _("The endpoint is removed.")

    return confirmed(
        request,
        title=_("Delete %(name)s") % {"name": endpoint.url},
        text=_("Nothing more is sent there; messages that wait for it are dropped."),
        back=_page_of(endpoint),
        action=Action.CHANGE_CONNECTIONS,
        act=act,
        submit=_("Delete"),
        tenant=tenant,
        onward=lambda: reverse("admin:webhooks"),
    )

"""The audit logs of the platform and of the chosen tenant: searched page by page; the platform's is exported as a file too.

Every page costs the same: it begins after an event's number and nothing is counted. Operators see the whole trail, tenant
admins the events of their tenant.
"""

import csv
import io
import json
from collections.abc import Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Final, Unpack
from urllib.parse import urlencode
from uuid import UUID

import orjson
from django import forms
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context, needs, staff_at
from console.frame.confirm import ConfirmView
from console.frame.forms import EventSearch, FormOptions, Line, Pick
from console.frame.records import Cell, Table, Text, Tone, mono, render_page
from console.frame.tenant_pages import reading_purpose, tenant_page
from console.metrics.tables import with_actors
from identity_platform.audit.writer import record_for_tenant
from tenants.models import Tenant
from userflow.audit.actions import PLATFORM, TENANT, Filters, export_events, page_of_events

Event = Context

PAGE: Final = 50
SHOWN_OF_ONE: Final = 10
# The limit of a download in the browser; the command export_audit has none.
MOST_EXPORTED: Final = 100_000
JSON_LINES, CSV = "jsonl", "csv"
COLUMNS: Final = (
    "id",
    "at",
    "action",
    "outcome",
    "actor_kind",
    "actor_id",
    "target_kind",
    "target_id",
    "address",
    "request_id",
    "tenant_id",
    "details",
)
_TONES = {"success": Tone.GOOD, "refused": Tone.WARNING, "failed": Tone.BAD}
# Spreadsheets take a cell that begins with one of these for a formula (OWASP, CSV injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


class SearchForm(EventSearch):
    """The filters of the platform's trail; operators can also choose a tenant."""

    tenant = forms.UUIDField(label=_("Tenant (id)"), required=False, widget=Line.widget)

    def __init__(self, *, operator: bool, **options: Unpack[FormOptions]) -> None:
        super().__init__(**options)
        if not operator:
            del self.fields["tenant"]


class ExportForm(SearchForm):
    """The same, and the format of the file."""

    form = Pick(
        label=_("File"),
        choices=[
            (JSON_LINES, _("JSON lines, one event a line")),
            (CSV, _("CSV for spreadsheets")),
        ],
    )
    before = None  # type: ignore[assignment]  # Django's way to leave an inherited field out


def _events(rows: list[Event], *, with_tenant: bool) -> list[tuple[object, ...]]:
    return [
        (
            f"{row['at']:%Y-%m-%d %H:%M:%S}",
            row["action"],
            Cell(row["outcome"], tone=_TONES.get(str(row["outcome"]), Tone.WARNING)),
            mono(f"{row['actor_kind']} {row['actor_id']}".strip()),
            mono(f"{row['target_kind']} {row['target_id']}".strip()),
            mono(row["address"]),
            # The spaces let a narrow column break lines between fields instead of inside words.
            mono(json.dumps(row["details"], ensure_ascii=False) if row["details"] else None),
            *([mono(row["tenant_id"])] if with_tenant else []),
        )
        for row in rows
    ]


def _headers(*, with_tenant: bool) -> tuple[Text, ...]:
    named = (_("When (UTC)"), _("Action"), _("Outcome"), _("Actor"), _("Target"), _("Address"), _("Details"))
    return (*named, _("Tenant")) if with_tenant else named


def of_target(target_id: UUID, *, within: UUID | None) -> Table:
    """Return the newest events about one object. `within` is the tenant of the reader, None for an operator."""
    filters = Filters(target=str(target_id))
    rows, _more = page_of_events(tenant_id=within, trail=PLATFORM, limit=SHOWN_OF_ONE, filters=filters)
    return Table(
        title=_("Latest events"),
        headers=_headers(with_tenant=False),
        rows=_events(rows, with_tenant=False),
        empty=_("No events yet."),
    )


@needs("audit:read")
def listed(request: HttpRequest) -> HttpResponse:
    """One page of the trail, newest first."""
    staff = staff_at(request)
    form = SearchForm(data=request.GET, operator=staff.is_operator)
    rows: list[Event] = []
    older = None
    if form.is_valid():
        rows, older = page_of_events(
            tenant_id=staff.user.tenant_id or form.cleaned_data.get("tenant"),
            trail=PLATFORM,
            limit=PAGE,
            filters=form.filters(),
            before=form.cleaned_data["before"],
        )
    asked = form.asked()
    return render_page(
        request,
        "console/platform/audit_logs.html",
        _("Audit log"),
        {
            "form": form,
            "asked": asked,
            "table": Table(
                title=_("Events"),
                headers=_headers(with_tenant=staff.is_operator),
                rows=_events(rows, with_tenant=staff.is_operator),
                empty=_("No event fits the filters. Remove a filter or choose another time."),
            ),
            "older": f"?{urlencode({**asked, 'before': older})}" if older else "",
            "newest": f"?{urlencode(asked)}" if "before" in request.GET else "",
            "export": f"{reverse('admin:audit_export')}?{urlencode(asked)}",
        },
        status=200 if form.is_valid() else 400,
    )


class Export(ConfirmView):
    """Download the trail as a file. The export is audited before the first byte is sent."""

    permissions = ("audit:read",)
    list_page = "admin:audit_trail"
    title = _("Export the audit log")
    text = _(
        "At most %(most)d events are exported, oldest first. For more, narrow the time or use the command export_audit. "
        "The file names users by ids and addresses: store it as carefully as the trail itself."
    )
    submit = _("Export")
    form_class = ExportForm

    events: Iterator[Event]
    file_format: str

    def names(self) -> Context:
        return {"most": MOST_EXPORTED}

    def get_initial(self) -> Context:
        return {name: value for name, value in self.request.GET.items() if name in ExportForm.base_fields}

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), "operator": self.staff.is_operator}

    def act(self, form: forms.Form) -> Text:
        assert isinstance(form, ExportForm)
        tenant_id = self.staff.user.tenant_id or form.cleaned_data.get("tenant")
        events = export_events(tenant_id=tenant_id, trail=PLATFORM, filters=form.filters())
        # Reading the first event writes the audit event, in this request and under this user.
        first = list(islice(events, 1))
        self.events, self.file_format = islice(chain(first, events), MOST_EXPORTED), form.cleaned_data["form"]
        return _("The export was recorded in the audit log.")

    def respond(self) -> HttpResponse:
        return _download(self.events, self.file_format)


def _download(events: Iterator[Event], form: str) -> HttpResponse:
    lines = as_csv(events) if form == CSV else (orjson.dumps(event, default=str) + b"\n" for event in events)
    response = StreamingHttpResponse(
        lines, content_type="text/csv; charset=utf-8" if form == CSV else "application/x-ndjson"
    )
    name = f"audit-{now():%Y%m%d-%H%M%S}.{form}"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["Cache-Control"] = "no-store"
    return response  # type: ignore[return-value]  # Django's streaming responses are no HttpResponse to the type checker


def as_csv(events: Iterator[Event]) -> Iterator[bytes]:
    """Yield events as CSV (RFC 4180). An apostrophe before would-be formulas keeps spreadsheets from running them."""
    line = io.StringIO()
    writer = csv.writer(line)
    writer.writerow(COLUMNS)
    for event in events:
        writer.writerow([_harmless(event.get(name)) for name in COLUMNS])
        yield line.getvalue().encode()
        line.seek(0)
        line.truncate()
    yield line.getvalue().encode()


def _harmless(value: object) -> str:
    if isinstance(value, dict):
        value = orjson.dumps(value, default=str).decode()
    if isinstance(value, datetime):
        value = value.isoformat()
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


@tenant_page("audit:read")
def of_tenant(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Events that match the filters, newest first. Every page costs the same."""
    form = EventSearch(request.GET)
    asked = form.asked() if form.is_valid() else {}
    record_for_tenant("audit.viewed", details={"console": True, "filters": sorted(asked)})
    before = form.cleaned_data.get("before")
    rows, following = page_of_events(
        tenant_id=tenant.pk,
        trail=TENANT,
        limit=PAGE,
        filters=form.filters(),
        before=before,
        purpose=reading_purpose(request),
    )
    return render_page(
        request,
        "console/people/audit_logs.html",
        _("Audit log"),
        {
            "form": form,
            "filtered": bool(asked),
            "events": with_actors(rows, staff_at(request)),
            "first": before is None,
            "next": urlencode({**asked, "before": following}) if following else "",
            "newest": urlencode(asked),
            "sees_people": staff_at(request).may("endusers:read"),
            "tenant": tenant,
        },
    )

"""The platform's audit trail: searched page by page, and taken away as a file.

A page costs the same however far back it is: it begins behind an event's number, nothing is counted. Operators see all of
the trail, a tenant's admins what it holds about their tenant.
"""

import csv
import io
import json
from collections.abc import Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

import orjson
from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.frame.access import needs, staff_at
from console.frame.confirm import confirmed
from console.frame.forms import Line, Moment, Pick
from console.frame.records import BAD, GOOD, MIND, NOTHING, Cell, Table
from userflow.audit.actions import PLATFORM, Filters, export_events, page_of_events

PAGE: Final = 50
SHOWN_OF_ONE: Final = 10
# A browser's download; longer ones are the command export_audit's.
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
_TONES = {"success": GOOD, "refused": MIND, "failed": BAD}
# What spreadsheets take for a formula at the beginning of a cell (OWASP, CSV injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


class SearchForm(forms.Form):
    """What to look for; what is left out looks for everything."""

    action = Line(label=gettext_lazy("Action"), required=False, max_length=64)
    actor = Line(label=gettext_lazy("Who (id)"), required=False, max_length=64)
    target = Line(label=gettext_lazy("On what (id)"), required=False, max_length=64)
    since = Moment(label=gettext_lazy("From (UTC)"), required=False)
    until = Moment(label=gettext_lazy("Before (UTC)"), required=False)
    tenant = forms.UUIDField(label=gettext_lazy("Tenant (id)"), required=False)
    before = forms.IntegerField(required=False, min_value=1, max_value=2**62, widget=forms.HiddenInput)

    def __init__(self, *args: Any, operator: bool, **options: Any) -> None:
        super().__init__(*args, **options)
        if operator:
            self.fields["tenant"].widget = Line().widget
        else:
            del self.fields["tenant"]

    def filters(self) -> Filters:
        """As the action takes them."""
        typed = self.cleaned_data
        return Filters(
            actor=typed["actor"] or None,
            action=typed["action"] or None,
            target=typed["target"] or None,
            since=typed["since"],
            until=typed["until"],
        )


class ExportForm(SearchForm):
    """The same, and the form of the file."""

    form = Pick(
        label=gettext_lazy("File"),
        choices=[
            (JSON_LINES, gettext_lazy("JSON lines, one event a line")),
            (CSV, gettext_lazy("CSV for spreadsheets")),
        ],
    )
    before = None  # type: ignore[assignment]  # Django's way to leave an inherited field out


def _events(rows: list[dict[str, Any]], *, with_tenant: bool) -> list[tuple[Cell, ...]]:
    return [
        (
            Cell(f"{row['at']:%Y-%m-%d %H:%M:%S}"),
            Cell(row["action"]),
            Cell(row["outcome"], tone=_TONES.get(row["outcome"], MIND)),
            Cell(f"{row['actor_kind']} {row['actor_id']}".strip(), mono=True),
            Cell(f"{row['target_kind']} {row['target_id']}".strip() or NOTHING, mono=True),
            Cell(row["address"] or NOTHING, mono=True),
            Cell(_details(row["details"]), mono=True),
            *([Cell(row["tenant_id"] or NOTHING, mono=True)] if with_tenant else []),
        )
        for row in rows
    ]


def _details(details: dict[str, Any]) -> str:
    # With blanks between its members, so that a narrow column breaks it there and not in the middle of words.
    return json.dumps(details, ensure_ascii=False) if details else NOTHING


def _headers(*, with_tenant: bool) -> tuple[str, ...]:
    named = (_("When (UTC)"), _("Action"), _("Outcome"), _("Who"), _("On what"), _("Address"), _("Details"))
    return (*named, _("Tenant")) if with_tenant else named


def of_target(target_id: UUID, *, within: UUID | None) -> Table:
    """The newest events about one thing, for its page; `within` is the tenant of the person who looks."""
    filters = Filters(target=str(target_id))
    rows, _more = page_of_events(tenant_id=within, trail=PLATFORM, limit=SHOWN_OF_ONE, filters=filters)
    return Table(
        title=_("Latest events"),
        headers=_headers(with_tenant=False),
        rows=_events(rows, with_tenant=False),
        empty=_("Nothing is written down about it yet."),
    )


@needs("audit:read")
def listed(request: HttpRequest) -> HttpResponse:
    """One page of the trail, the newest first."""
    staff = staff_at(request)
    form = SearchForm(request.GET, operator=staff.is_operator)
    rows: list[dict[str, Any]] = []
    onward = None
    if form.is_valid():
        rows, onward = page_of_events(
            tenant_id=staff.user.tenant_id or form.cleaned_data.get("tenant"),
            trail=PLATFORM,
            limit=PAGE,
            filters=form.filters(),
            before=form.cleaned_data["before"],
        )
    asked = {name: value for name, value in request.GET.items() if name in form.fields and name != "before" and value}
    return TemplateResponse(
        request,
        "console/platform/audit_logs.html",
        {
            **admin.site.each_context(request),
            "title": _("Audit trail"),
            "form": form,
            "asked": asked,
            "table": Table(
                title=_("Events"),
                headers=_headers(with_tenant=staff.is_operator),
                rows=_events(rows, with_tenant=staff.is_operator),
                empty=_("No event fits. Take a filter away, or look at another time."),
            ),
            "older": f"?{urlencode({**asked, 'before': onward})}" if onward else "",
            "newest": f"?{urlencode(asked)}" if "before" in request.GET else "",
            "export": f"{reverse('admin:audit_export')}?{urlencode(asked)}",
        },
        status=200 if form.is_valid() else 400,
    )


@needs("audit:read")
def export(request: HttpRequest) -> HttpResponse:
    """The trail as a file; that it was taken is written down first."""
    staff = staff_at(request)
    found: dict[str, Any] = {}

    def act(typed: dict[str, Any]) -> str:
        filters = Filters(
            actor=typed["actor"] or None,
            action=typed["action"] or None,
            target=typed["target"] or None,
            since=typed["since"],
            until=typed["until"],
        )
        tenant_id = staff.user.tenant_id or typed.get("tenant")
        events = export_events(tenant_id=tenant_id, trail=PLATFORM, filters=filters)
        # Begun now: the row about it is written in this request, by this person, before anything leaves.
        first = list(islice(events, 1))
        found.update(events=islice(chain(first, events), MOST_EXPORTED), form=typed["form"])
        return _("The export was written to the audit trail.")

    initial = {name: value for name, value in request.GET.items() if name in ExportForm.base_fields}
    return confirmed(
        request,
        title=_("Export the audit trail"),
        text=_(
            "At most %(most)d events leave as a file, the oldest first; for more, narrow the time or use the command "
            "export_audit. The file names people by their ids and addresses: keep it where the trail may be kept."
        )
        % {"most": MOST_EXPORTED},
        back=reverse("admin:audit_trail"),
        action=None,
        act=act,
        form_class=ExportForm,
        form_options={"operator": staff.is_operator, "initial": initial},
        submit=_("Export"),
        shown=lambda _request: _download(found["events"], found["form"]),
    )


def _download(events: Iterator[dict[str, Any]], form: str) -> HttpResponse:
    lines = as_csv(events) if form == CSV else (orjson.dumps(event, default=str) + b"\n" for event in events)
    answer = StreamingHttpResponse(
        lines, content_type="text/csv; charset=utf-8" if form == CSV else "application/x-ndjson"
    )
    name = f"audit-{now():%Y%m%d-%H%M%S}.{form}"
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    answer.headers["Cache-Control"] = "no-store"
    return answer  # type: ignore[return-value]  # Django's answers that stream are no HttpResponse to the type checker


def as_csv(events: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    """Events as CSV (RFC 4180) that no spreadsheet runs: what would be a formula is led by an apostrophe."""
    line = io.StringIO()
    writer = csv.writer(line)
    writer.writerow(COLUMNS)
    for event in events:
        writer.writerow([_harmless(event.get(name)) for name in COLUMNS])
        yield line.getvalue().encode()
        line.seek(0)
        line.truncate()
    yield line.getvalue().encode()


def _harmless(value: Any) -> str:
    if isinstance(value, dict):
        value = orjson.dumps(value, default=str).decode()
    if isinstance(value, datetime):
        value = value.isoformat()
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text

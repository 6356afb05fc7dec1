"""Audit events as a file: JSON lines, or CSV for spreadsheets."""

import csv
import io
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import orjson
from django.http import HttpResponse, StreamingHttpResponse
from django.utils.timezone import now

from console.frame.access import Context
from identity_platform.transfer.rows import escape_formula

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


def download(events: Iterator[Context], form: str) -> HttpResponse:
    """Return the events as a file that is written while it is sent."""
    lines = as_csv(events) if form == CSV else (orjson.dumps(event, default=str) + b"\n" for event in events)
    response = StreamingHttpResponse(
        lines, content_type="text/csv; charset=utf-8" if form == CSV else "application/x-ndjson"
    )
    name = f"audit-{now():%Y%m%d-%H%M%S}.{form}"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["Cache-Control"] = "no-store"
    return response  # type: ignore[return-value]  # Django's streaming responses are no HttpResponse to the type checker


def as_csv(events: Iterator[Context]) -> Iterator[bytes]:
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
    return escape_formula(text)

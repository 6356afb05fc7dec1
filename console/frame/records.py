"""Pages of one object: facts, tables of related rows, and buttons for the permitted changes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from django.contrib import admin
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from console.frame.access import Context

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

    Text = str | _StrPromise
else:
    Text = str | Promise
GOOD, BAD, MIND, PLAIN = "success", "danger", "warning", "info"
NOTHING: Final = "–"


@dataclass(frozen=True, slots=True)
class Cell:
    """A displayed value: as a link, as a badge with a `tone`, or monospaced (ids, key ids)."""

    text: object
    link: str = ""
    tone: str = ""
    mono: bool = False


@dataclass(frozen=True, slots=True)
class Button:
    """A link to a page that changes something; shown only if the user may open it."""

    title: Text
    link: str
    variant: str = "default"


def buttons_to(pages: str, *args: object, **titles: Text) -> list[Button]:
    """Return buttons by the last part of the name of each page, which begins with `pages`."""
    return [Button(title, reverse(f"admin:{pages}_{name}", args=args)) for name, title in titles.items()]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a heading. `empty` says what to do if there are none."""

    title: Text
    headers: Sequence[Text]
    rows: Sequence[Sequence[Cell]]
    empty: Text
    buttons: Sequence[Button] = ()
    # The buttons of each row, in the order of the rows.
    actions: Sequence[Sequence[Button]] = ()
    note: Text = ""

    @property
    def lines(self) -> list[Context]:
        """Return the rows for the template: each cell with its header, and the buttons of the row."""
        actions = self.actions or [()] * len(self.rows)
        return [
            {"cells": list(zip(self.headers, row, strict=True)), "actions": allowed}
            for row, allowed in zip(self.rows, actions, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Record:
    """A page. `facts` are pairs of a label and a cell; `warning` is shown at the top."""

    title: Text
    facts: Sequence[tuple[Text, Cell]] = ()
    tables: Sequence[Table] = ()
    buttons: Sequence[Button] = ()
    text: Text = ""
    warning: Text = ""
    back: str = ""
    more: Context = field(default_factory=dict)


def render_page(
    request: HttpRequest, template: str, title: Text, context: Context, *, status: int = 200
) -> TemplateResponse:
    """Return a page in the console's frame."""
    context = {**admin.site.each_context(request), "title": title, **context}
    return TemplateResponse(request, template, context, status=status)


def record_page(request: HttpRequest, record: Record, *, template: str = "console/record.html") -> TemplateResponse:
    """Return the page of a record."""
    return render_page(request, template, record.title, {"record": record, **record.more})


def never_stored(response: TemplateResponse) -> TemplateResponse:
    """Keep browsers and proxies from caching the page."""
    response.headers["Cache-Control"] = "no-store"
    return response


def secret_page(
    request: HttpRequest, *, secret: str, back: str, of: str = "", title: str = "", text: str = ""
) -> TemplateResponse:
    """Return the page that shows a secret once."""
    title = title or _("Secret of %(name)s") % {"name": of}
    record = Record(title=title, text=text, back=back, more={"secret": secret, "label": "" if of else _("Pass")})
    return never_stored(record_page(request, record, template="console/secret.html"))


def moment(value: object) -> str:
    """Return a time in UTC, so that staff in several time zones and logs agree; a dash for None."""
    return f"{value:%Y-%m-%d %H:%M} UTC" if isinstance(value, datetime) else NOTHING


def yes_or_no(value: bool) -> Cell:
    """Return a flag as a badge."""
    return Cell(_("yes"), tone=GOOD) if value else Cell(_("no"), tone=PLAIN)

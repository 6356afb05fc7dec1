"""Pages of one object: facts, tables of related rows, and buttons for the permitted changes.

Facts and rows hold the values themselves; `cell_of` says how each kind of value is shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from django.contrib import admin
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.translation import gettext as _

from console.frame.access import Context
from identity_platform.api.email_addresses import shown_address

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

    Text = str | _StrPromise
else:
    Text = str | Promise
NOTHING: Final = "–"


class Tone(StrEnum):
    """The colour of a badge, as unfold names it."""

    GOOD = "success"
    BAD = "danger"
    WARNING = "warning"
    PLAIN = "info"


@dataclass(frozen=True, slots=True)
class Cell:
    """A displayed value: as a link, as a badge with a `tone`, or monospaced (ids, key ids)."""

    text: object
    link: str = ""
    tone: str = ""
    mono: bool = False


def mono(value: object) -> Cell:
    """Return a monospaced cell."""
    return Cell(value, mono=True)


def cell_of(value: object) -> Cell:
    """Return a value as a cell: a time in UTC, a flag as a badge, a list joined, and a dash for nothing."""
    match value:
        case Cell():
            return value if value.text not in ("", None) else replace(value, text=NOTHING)
        case bool():
            return Cell(_("yes"), tone=Tone.GOOD) if value else Cell(_("no"), tone=Tone.PLAIN)
        case datetime():
            return Cell(moment(value))
        case list() | tuple():
            return cell_of(", ".join(map(str, value)))
        case _:
            return Cell(NOTHING if value in ("", None) else value)


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
    rows: Sequence[Sequence[object]]
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
            {"cells": list(zip(self.headers, map(cell_of, row), strict=True)), "actions": allowed}
            for row, allowed in zip(self.rows, actions, strict=True)
        ]


def render_page(
    request: HttpRequest, template: str, title: Text, context: Context, *, status: int = 200
) -> TemplateResponse:
    """Return a page in the console's frame."""
    context = {**admin.site.each_context(request), "title": title, **context}
    return TemplateResponse(request, template, context, status=status)


def record_page(
    request: HttpRequest,
    title: Text,
    *,
    facts: Sequence[tuple[Text, object]] = (),
    template: str = "console/record.html",
    **context: object,
) -> TemplateResponse:
    """Return the page of an object.

    `facts` are pairs of a label and a value. The template also takes `tables` and `buttons`, a `text`, a `warning` at the
    top, and `back`, the page of the Back button.
    """
    cells = [(label, cell_of(value)) for label, value in facts]
    return render_page(request, template, title, {"cells": cells, **context})


def never_stored(response: TemplateResponse) -> TemplateResponse:
    """Keep browsers and proxies from caching the page."""
    response.headers["Cache-Control"] = "no-store"
    return response


def secret_page(
    request: HttpRequest, *, secret: str, back: str, of: str = "", title: str = "", text: str = ""
) -> TemplateResponse:
    """Return the page that shows a secret once."""
    title = title or _("Secret of %(name)s") % {"name": of}
    label = "" if of else _("Pass")
    return never_stored(
        record_page(request, title, text=text, back=back, secret=secret, label=label, template="console/secret.html")
    )


def with_encoded_form(stored: str) -> str:
    """Return a domain or an e-mail address in Unicode, and beside it the form that is stored if that differs.

    Letters of several alphabets look alike, so the Unicode form alone does not identify a domain.
    """
    shown = shown_address(stored)
    return stored if shown == stored else format_html('{} <small class="record-encoded">{}</small>', shown, stored)


def moment(value: object) -> str:
    """Return a time in UTC, so that staff in several time zones and logs agree; a dash for None."""
    return f"{value:%Y-%m-%d %H:%M} UTC" if isinstance(value, datetime) else NOTHING

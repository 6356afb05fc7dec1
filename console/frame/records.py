"""Pages that show one thing: facts about it, tables of what belongs to it, and buttons for what may be done."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from django.contrib import admin
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.functional import Promise
from django.utils.translation import gettext as _

Text = str | Promise
GOOD, BAD, MIND, PLAIN = "success", "danger", "warning", "info"
NOTHING: Final = "–"


@dataclass(frozen=True, slots=True)
class Cell:
    """A value as it is shown: as a link, as a badge with a `tone`, or (ids, kids) in a typeface that tells 1 from l."""

    text: Any
    link: str = ""
    tone: str = ""
    mono: bool = False


@dataclass(frozen=True, slots=True)
class Button:
    """A way to a page that does something; what may not be done has none."""

    title: Text
    link: str
    variant: str = "default"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a heading. `empty` says what to do where there are none."""

    title: Text
    headers: Sequence[Text]
    rows: Sequence[Sequence[Cell]]
    empty: Text
    buttons: Sequence[Button] = ()
    # What each row allows, in the order of the rows.
    actions: Sequence[Sequence[Button]] = ()
    note: Text = ""

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Rows as the template takes them: each cell with its header, and the row's buttons."""
        actions = self.actions or [()] * len(self.rows)
        return [
            {"cells": list(zip(self.headers, row, strict=True)), "actions": allowed}
            for row, allowed in zip(self.rows, actions, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Record:
    """A page. `facts` are pairs of a label and a cell; `warning` stands above everything."""

    title: Text
    facts: Sequence[tuple[Text, Cell]] = ()
    tables: Sequence[Table] = ()
    buttons: Sequence[Button] = ()
    text: Text = ""
    warning: Text = ""
    back: str = ""
    more: dict[str, Any] = field(default_factory=dict)


def record_page(
    request: HttpRequest, record: Record, *, template: str = "console/record.html", status: int = 200
) -> TemplateResponse:
    """The page of a record in the console's frame."""
    context = {**admin.site.each_context(request), "title": record.title, "record": record, **record.more}
    return TemplateResponse(request, template, context, status=status)


def secret_page(
    request: HttpRequest, *, secret: str, back: str, of: str = "", title: str = "", text: str = ""
) -> TemplateResponse:
    """The page that shows the secret of `of`, or what `title` says, once: no browser and no proxy keeps it."""
    title = title or _("Secret of %(name)s") % {"name": of}
    record = Record(title=title, text=text, back=back, more={"secret": secret, "label": "" if of else _("Pass")})
    answer = record_page(request, record, template="console/secret.html")
    answer.headers["Cache-Control"] = "no-store"
    return answer


def moment(value: datetime | None) -> str:
    """A time as staff in several zones can compare it, and as logs and the API write it."""
    return f"{value:%Y-%m-%d %H:%M} UTC" if value is not None else NOTHING


def yes_or_no(value: bool) -> Cell:
    """A flag as a badge."""
    return Cell(_("yes"), tone=GOOD) if value else Cell(_("no"), tone=PLAIN)

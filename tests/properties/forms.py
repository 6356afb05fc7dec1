"""The hosted pages as the attacker's browser sees them: which there are, and the forms in them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

from openid.pages.urls import urlpatterns


@dataclass
class Form:
    """A form of a page."""

    action: str
    method: str
    # Name and value of each field; buttons with a name are fields that are sent one at a time.
    fields: dict[str, str] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    buttons: list[tuple[str, str]] = field(default_factory=list)


@cache
def page_paths() -> tuple[str, ...]:
    """Return the paths of the hosted pages below the tenant's issuer, as the URL configuration lists them."""
    return tuple(_SLOT.sub("{factor_id}", str(page.pattern)) for page in urlpatterns)


_SLOT = re.compile(r"<uuid:\w+>")


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.links: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(values.get("action", ""), values.get("method", "get").lower()))
            self._inside = True
        elif tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif self._inside and values.get("name"):
            form, name = self.forms[-1], values["name"]
            if tag == "button" or values.get("type") in ("submit", "image"):
                form.buttons.append((name, values.get("value", "")))
            elif tag in ("input", "select", "textarea"):
                form.fields[name] = values.get("value", "")
                if values.get("type") == "hidden":
                    form.hidden.add(name)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False


def forms_of(page: Any) -> list[Form]:
    """Return the forms of a page that are sent by POST."""
    return [form for form in _read(page).forms if form.method == "post"]


def links_of(page: Any, root: str) -> list[str]:
    """Return the links of a page to other pages of the tenant."""
    return list(_links(_read(page).links, root))


def _links(links: list[str], root: str) -> Iterator[str]:
    for link in links:
        path = urljoin(f"{root}/", link)
        if urlsplit(path).path.startswith(f"{root}/"):
            yield path


def _read(page: Any) -> _Reader:
    reader = _Reader()
    if page is not None and "text/html" in page.headers.get("Content-Type", ""):
        reader.feed(page.content.decode())
    return reader

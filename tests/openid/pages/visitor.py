"""A browser at a tenant's hosted pages, without a script: it keeps cookies, follows links and sends forms."""

import re
from dataclasses import dataclass, field
from functools import partial
from html import unescape
from typing import Any
from urllib.parse import urlsplit

from django.test import Client

from openid.browser import SESSION, cookie_name
from tests.openid.relying_party import CALLBACK, Application, query_of, register_application
from tests.world import PASSWORD, TestTenant, User, new_client, unique_ip

_TOKEN = re.compile(r'name="form_token" value="([^"]+)"')
_ACTION = re.compile(r'<form method="post" action="([^"]*)"')


@dataclass
class Visitor:
    """A browser; `page` is the last response."""

    tenant: TestTenant
    client: Client = field(default_factory=partial(new_client, raise_request_exception=False))
    address: str = field(default_factory=unique_ip)
    page: Any = None

    @property
    def root(self) -> str:
        """Return the path of the tenant's pages."""
        return f"/t/{self.tenant.slug}"

    def opens(self, path: str, **headers: str) -> Any:
        """Open a page: a path below the tenant's, or a whole one."""
        whole = path if path.startswith("/") else f"{self.root}/{path}"
        self.page = self.client.get(whole, headers=headers, REMOTE_ADDR=self.address)
        return self._follow()

    def sends(self, path: str | None = None, *, follow: bool = True, **fields: str) -> Any:
        """Send the form of the page, to another path if one is given."""
        found = _TOKEN.search(self.text)
        whole = self._here if path is None else f"{self.root}/{path}"
        body = {"form_token": found[1] if found else "", **fields}
        self.page = self.client.post(whole, body, REMOTE_ADDR=self.address)
        return self._follow() if follow else self.page

    def _follow(self) -> Any:
        for _ in range(20):
            if self.page.status_code != 303 or not self.page.headers["Location"].startswith("/"):
                return self.page
            self.page = self.client.get(self.page.headers["Location"], REMOTE_ADDR=self.address)
        raise AssertionError(f"redirects without end: {self.page.headers['Location']}")

    @property
    def text(self) -> str:
        """Return the HTML of the page."""
        return str(self.page.content.decode()) if self.page is not None else ""

    @property
    def words(self) -> str:
        """Return the text of the page, without tags."""
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", self.text)).split())

    @property
    def _here(self) -> str:
        """Return the address that the page's form is sent to: its own, but that of the form where `/authorize` shows it."""
        request, action = self.page.request, _ACTION.search(self.text)
        if action is not None and str(request["PATH_INFO"]).endswith("/authorize"):
            return unescape(action[1])
        return str(request["PATH_INFO"] + (f"?{request['QUERY_STRING']}" if request["QUERY_STRING"] else ""))

    @property
    def at(self) -> str:
        """Return the path of the page below the tenant's; that of its form where `/authorize` shows it."""
        return urlsplit(self._here).path.removeprefix(f"{self.root}/")

    @property
    def query(self) -> str:
        """Return the query of that address."""
        return urlsplit(self._here).query

    @property
    def session(self) -> str | None:
        """Return the value of the session cookie."""
        morsel = self.client.cookies.get(cookie_name(SESSION, self.tenant.id))
        return morsel.value or None if morsel is not None else None

    def signs_in(self, user: User, path: str = "signin", *, password: str = PASSWORD) -> Any:
        """Enter address and password."""
        self.opens(path)
        return self.sends(email=user.email, password=password)


def begin(visitor: Visitor, **asked: Any) -> Application:
    """Send the browser to the authorization endpoint as an application does."""
    fields = asked.pop("client", {"first_party": True})
    app = Application(visitor.tenant, register_application(visitor.tenant, **fields))
    app.browser.client, app.browser.address = visitor.client, visitor.address
    visitor.page = app.authorize(**asked)
    visitor._follow()
    return app


def code_of(page: Any) -> str:
    """Return the code that the application gets."""
    assert page.status_code == 303, page.content
    assert page.headers["Location"].startswith(CALLBACK)
    return query_of(page.headers["Location"])["code"]

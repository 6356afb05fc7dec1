"""A browser without scripts for applications that sign users in over real sockets."""

import re
from html import unescape
from urllib.parse import urljoin

import requests

_FORM = re.compile(r"<form\b([^>]*)>(.*?)</form>", re.DOTALL)
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)"')


class FormBrowser:
    """Keeps cookies, follows redirects and links, and sends forms; `page` is the last response."""

    def __init__(self) -> None:
        self.session = requests.Session()
        self.page = requests.Response()

    def opens(self, address: str) -> str:
        """Open a page; return its text."""
        self.page = self.session.get(urljoin(self.page.url or "", address), timeout=60)
        return self.page.text

    def sends(self, **fields: str) -> str:
        """Send the first form that has the fields; return the text of the next page."""
        for attributes, body in _FORM.findall(self.page.text):
            if all(f'name="{name}"' in body for name in fields):
                action = re.search(r'action="([^"]*)"', attributes)
                address = urljoin(self.page.url, unescape(action[1]) if action else "")
                hidden = {name: unescape(value) for name, value in _HIDDEN.findall(body)}
                self.page = self.session.post(address, {**hidden, **fields}, timeout=60)
                return self.page.text
        raise AssertionError(f"no form with {', '.join(fields)} at {self.page.url}:\n{self.page.text[:2000]}")

    def signs_in(self, email: str, password: str) -> str:
        """Sign in at the hosted pages; return the text of the application's page."""
        return self.sends(email=email, password=password)

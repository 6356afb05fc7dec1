"""JSON over HTTPS, to the suite and to the platform."""

import json
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

SECONDS = 60


class Rejected(Exception):
    """A response with an error status."""


@dataclass
class Server:
    """A server with a JSON API, called with a bearer token if there is one."""

    url: str
    trust: ssl.SSLContext
    token: str = ""

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """Send one request, with `body` as JSON, or unchanged if it is text; return the decoded body. Raises Rejected."""
        address = f"{self.url.rstrip('/')}/{path}" + (f"?{urlencode(query)}" if query else "")
        text = body if isinstance(body, str) else json.dumps(body)
        data = b"" if body is None else text.encode()
        media = "text/plain" if isinstance(body, str) else "application/json"
        headers = {"Content-Type": media, "Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = Request(address, data=data, headers=headers, method=method)
        try:
            with urlopen(request, timeout=SECONDS, context=self.trust) as response:
                content = response.read()
        except HTTPError as error:
            raise Rejected(f"{method} {address}: {error.code} {error.read().decode(errors='replace')[:500]}") from error
        return json.loads(content) if content else None

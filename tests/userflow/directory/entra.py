"""A stand-in for Microsoft's token endpoint and Graph over HTTP: pages, delta links, throttling, expired tokens."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

DIRECTORY, APPLICATION, SECRET = "11111111-2222-4333-8444-555555555555", "an-application", "its client secret"


@dataclass
class Entra:
    """The directory: its content, its behaviour and the requests that it received."""

    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, set[str]] = field(default_factory=dict)
    # Groups with endless pages, and the number of new members on each page.
    endless: dict[str, int] = field(default_factory=dict)
    page: int = 100
    # Statuses to return before the next real responses of Graph, with the seconds of Retry-After.
    refusals: list[tuple[int, int]] = field(default_factory=list)
    # A token is rejected after this number of responses.
    token_lasts: int = 1_000_000
    next_link_host: str = ""
    forgets_links: bool = False
    # Redirect targets of "login" and "graph".
    redirects: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    posted: list[str] = field(default_factory=list)
    tokens_given: int = 0
    # The directory's history: (number, user id). A delta link names the number to continue from.
    changes: list[str] = field(default_factory=list)
    _left: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        entra = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                sent = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                entra.give_token(self, {name: values[0] for name, values in sent.items()})

            def do_GET(self) -> None:
                entra.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    # --- changes by tests --------------------------------------------------------------------------------------

    def add(self, mail: str | None, **members: Any) -> str:
        identity = str(uuid4())
        name = (mail or "unknown").partition("@")[0]
        self.users[identity] = {"id": identity, "mail": mail, "displayName": name, "accountEnabled": True, **members}
        self.changes.append(identity)
        return identity

    def change(self, identity: str, **members: Any) -> None:
        self.users[identity] |= members
        self.changes.append(identity)

    def remove(self, identity: str) -> None:
        del self.users[identity]
        self.changes.append(identity)

    def members(self, **more: Any) -> dict[str, Any]:
        """Return the fields of a configuration for this directory."""
        return {
            "kind": "entra_id",
            "cloud": "standin",
            "directory_tenant_id": DIRECTORY,
            "application_id": APPLICATION,
            "secret": SECRET,
            **more,
        }

    def end(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    # --- responses ---------------------------------------------------------------------------------------------

    def give_token(self, handler: BaseHTTPRequestHandler, sent: dict[str, str]) -> None:
        self.posted.append(handler.path)
        if "login" in self.redirects:
            return self._send(handler, 307, {}, {"Location": self.redirects["login"] + handler.path})
        right = {
            "grant_type": "client_credentials",
            "client_id": APPLICATION,
            "client_secret": SECRET,
            "scope": f"{self.base}/.default",
        }
        if handler.path != f"/{DIRECTORY}/oauth2/v2.0/token" or sent != right:
            return self._send(handler, 401, {"error": "invalid_client", "error_description": f"not {sent}"})
        self.tokens_given += 1
        token = f"token-{self.tokens_given}"
        self._left[token] = self.token_lasts
        return self._send(handler, 200, {"token_type": "Bearer", "expires_in": 3599, "access_token": token})

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append(handler.path)
        if "graph" in self.redirects:
            return self._send(handler, 302, {}, {"Location": self.redirects["graph"] + handler.path})
        token = handler.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._left.get(token, 0) <= 0:
            return self._send(handler, 401, {"error": {"code": "InvalidAuthenticationToken", "message": "expired"}})
        if self.refusals:
            status, seconds = self.refusals.pop(0)
            body = {"error": {"code": "TooManyRequests", "message": "slow down"}}
            return self._send(handler, status, body, {"Retry-After": str(seconds)})
        self._left[token] -= 1
        parts = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/v1.0/users/delta":
            return self._users(handler, query)
        if parts.path.startswith("/v1.0/groups/") and parts.path.endswith("/transitiveMembers"):
            return self._group(handler, parts.path.split("/")[3], int(query.get("$skiptoken", 0)))
        return self._send(handler, 404, {"error": {"code": "Request_ResourceNotFound", "message": "?"}})

    def _users(self, handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        if self.forgets_links and "$deltatoken" in query:
            return self._send(handler, 410, {"error": {"code": "syncStateNotFound", "message": "resync"}})
        since = int(query.get("$deltatoken", -1))
        skipped = int(query.get("$skiptoken", 0))
        if since < 0:
            rows = list(self.users.values())
        else:
            changed = dict.fromkeys(self.changes[since:])
            gone = {"@removed": {"reason": "changed"}}
            rows = [self.users.get(identity, {"id": identity, **gone}) for identity in changed]
        # Null values are left out, as Graph does.
        shown = [{k: v for k, v in row.items() if v is not None} for row in rows[skipped : skipped + self.page]]
        link = f"{self.next_link_host or self.base}/v1.0/users/delta?"
        if skipped + self.page < len(rows):
            more = f"&$deltatoken={since}" if since >= 0 else ""
            tail = {"@odata.nextLink": f"{link}$skiptoken={skipped + self.page}{more}"}
        else:
            tail = {"@odata.deltaLink": f"{link}$deltatoken={len(self.changes)}"}
        return self._send(handler, 200, {"value": shown, **tail})

    def _group(self, handler: BaseHTTPRequestHandler, group: str, page: int) -> None:
        if group in self.endless:
            first, named = page * self.endless[group], self.endless[group]
            rows = [{"id": identity} for identity in self.groups.get(group, set())]
            rows += [{"id": f"member-{number}"} for number in range(first, first + named)]
            link = f"{self.base}/v1.0/groups/{group}/transitiveMembers?$skiptoken={page + 1}"
            return self._send(handler, 200, {"value": rows, "@odata.nextLink": link})
        if group not in self.groups:
            return self._send(handler, 404, {"error": {"code": "Request_ResourceNotFound", "message": "?"}})
        return self._send(handler, 200, {"value": [{"id": identity} for identity in sorted(self.groups[group])]})

    def _send(
        self, handler: BaseHTTPRequestHandler, status: int, body: dict[str, Any], headers: dict[str, str] | None = None
    ) -> None:
        sent = json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(sent)))
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(sent)

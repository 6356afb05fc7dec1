"""Sessions in the database: the cookie has a random token, the database its hash and the data."""

import hashlib
import json
import secrets
import time
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from store import Store

# Cookies are shared by all ports of a host, so the name is one of this application.
COOKIE = "planboard_session"
SECONDS = 8 * 3600


class Sessions:
    """ASGI middleware: `request.session` is a dictionary that is stored if it has changed, and deleted if it is empty.

    A user who has just signed in gets a new token, so that a token that was planted before is worth nothing.
    """

    def __init__(self, app: ASGIApp, store: Store, *, secure: bool) -> None:
        self._app, self._store = app, store
        self._attributes = f"Path=/; HttpOnly; SameSite=Lax{'; Secure' if secure else ''}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        token = HTTPConnection(scope).cookies.get(COOKIE, "")
        before = self._load(token)
        session = scope["session"] = dict(before)

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and session != before:
                kept = token if before and session.get("sub") == before.get("sub") else ""
                cookie = self._save(token, kept, session)
                MutableHeaders(scope=message).append("Set-Cookie", f"{COOKIE}={cookie}; {self._attributes}")
            await send(message)

        await self._app(scope, receive, send_with_cookie)

    def _load(self, token: str) -> dict[str, Any]:
        found = self._store.run(
            "SELECT data FROM session WHERE token_digest = ? AND expires_at > ?", _digest(token), time.time()
        )
        return dict(json.loads(found[0]["data"])) if found else {}

    def _save(self, token: str, kept: str, session: dict[str, Any]) -> str:
        """Store the session; return the value and the lifetime of its cookie."""
        if not kept:
            self._store.run("DELETE FROM session WHERE token_digest = ? OR expires_at < ?", _digest(token), time.time())
        if not session:
            return "; Max-Age=0"
        data = json.dumps(session)
        if kept:
            # A session that was ended meanwhile does not come back.
            self._store.run("UPDATE session SET data = ? WHERE token_digest = ?", data, _digest(kept))
            return f"{kept}; Max-Age={SECONDS}"
        fresh = secrets.token_urlsafe(32)
        self._store.run(
            "INSERT INTO session (token_digest, data, expires_at) VALUES (?, ?, ?)",
            *(_digest(fresh), data, time.time() + SECONDS),
        )
        return f"{fresh}; Max-Age={SECONDS}"


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()

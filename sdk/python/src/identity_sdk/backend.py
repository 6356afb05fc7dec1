"""Back ends: tokens of the application itself, and the credentials of the services that it calls."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

import httpx2

from identity_sdk.errors import IdentityError, is_token_rejected, json_of

# Seconds before its end in which a token is no longer used.
LEEWAY = 30


class ClientCredentials(httpx2.Auth):
    """Tokens of a confidential client (RFC 6749 section 4.4), requested once and used until they expire.

    Give it to `httpx2.Client(auth=...)` or `httpx2.AsyncClient(auth=...)`, or call `token()`. Threads may share it.
    """

    def __init__(
        self,
        base_url: str,
        client_id: str,
        client_secret: str,
        *,
        scope: str | None = None,
        http: httpx2.Client | None = None,
    ) -> None:
        self._url = base_url.rstrip("/") + "/authmgr/token"
        # Both are form-encoded first (RFC 6749 section 2.3.1).
        self._basic = httpx2.BasicAuth(quote_plus(client_id), quote_plus(client_secret))
        self._form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        self._http = http or httpx2.Client(timeout=30)
        self._lock = threading.Lock()
        self._token, self._ends = "", 0.0

    def token(self, *, rejected: str | None = None) -> str:
        """Return a token; a new one if the last one expires soon or was `rejected`. Raises ApiError."""
        with self._lock:
            if self._token in ("", rejected) or time.monotonic() > self._ends:
                said = json_of(self._http.post(self._url, data=self._form, auth=self._basic))
                lifetime = float(said["expires_in"])
                self._token = str(said["access_token"])
                self._ends = time.monotonic() + lifetime - min(LEEWAY, lifetime / 2)
            return self._token

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Authorize a request; repeat it once with a new token if the token was revoked."""
        token = self.token()
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if is_token_rejected(response):
            request.headers["Authorization"] = f"Bearer {self.token(rejected=token)}"
            yield request

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Do the same without blocking the event loop."""
        token = await asyncio.to_thread(self.token)
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if is_token_rejected(response):
            request.headers["Authorization"] = f"Bearer {await asyncio.to_thread(self.token, rejected=token)}"
            yield request


@dataclass(frozen=True)
class ServiceCredential:
    """A credential of an external service; `secret` is text or an object, as it was stored."""

    id: str
    name: str
    type: str
    secret: Any = field(repr=False)
    base_url: str
    expires_at: str | None
    metadata: dict[str, Any]


class Registry:
    """Reads credentials of external services. The client needs the scopes `services:read` and `services:credentials`."""

    def __init__(self, base_url: str, credentials: ClientCredentials) -> None:
        self._http = httpx2.Client(base_url=f"{base_url.rstrip('/')}/exsvc/api/v1", auth=credentials, timeout=30)

    def credentials(self, service: str) -> list[ServiceCredential]:
        """Return the active credentials of the service with this name. Every read is audited. Raises ApiError."""
        found = json_of(self._http.get("/services", params={"name": service}))["services"]
        if not found:
            raise IdentityError(f"The tenant has no service with the name {service!r}.")
        said = json_of(self._http.get(f"/services/{found[0]['id']}/credentials"))
        names = ("id", "name", "type", "secret", "expires_at", "metadata")
        return [
            ServiceCredential(base_url=said["base_url"], **{name: each[name] for name in names})
            for each in said["credentials"]
        ]

    def credential(self, service: str, name: str) -> ServiceCredential:
        """Return one active credential by the names of the service and its own."""
        for each in self.credentials(service):
            if each.name == name:
                return each
        raise IdentityError(f"The service {service!r} has no active credential with the name {name!r}.")

"""Back ends: tokens of the application itself, and the credentials of the services that it calls."""

import asyncio
import time
from collections.abc import AsyncGenerator, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, quote_plus

import httpx2

from identity_sdk.errors import IdentityError, fields_of, is_token_rejected, json_of
from identity_sdk.transport import SingleFlight, checked_url, origin_of, shared_http

# Seconds before its end in which a token is no longer used, and after its start in which it is not replaced.
LEEWAY, NEW = 30, 3


class ClientCredentials(httpx2.Auth):
    """Tokens of a confidential client (RFC 6749 section 4.4), requested once and used until they expire.

    Give it to `httpx2.Client(auth=...)` or `httpx2.AsyncClient(auth=...)`, or call `token()`. Threads may share it. Requests
    to any other origin raise IdentityError, because a service that gets a token can use it.

    Args:
        issuer: `https://<platform>/t/<slug>`; needed for a `resource`.
        resource: the API that the token is for (RFC 8707), one of the client's `audiences`. Without one it is for the
            platform's own API.
        origins: where the token is sent; default: the platform, or the `resource` if there is one.
    """

    def __init__(
        self,
        base_url: str,
        client_id: str,
        client_secret: str,
        *,
        scope: str | None = None,
        issuer: str | None = None,
        resource: str | None = None,
        origins: Iterable[str] | None = None,
        http: httpx2.Client | None = None,
    ) -> None:
        if resource is not None and issuer is None:
            raise ValueError("A resource needs the issuer: https://<platform>/t/<slug>.")
        base_url = checked_url("base_url", base_url)
        # Only the tenant's own endpoint knows resources.
        root = f"{base_url.rstrip('/')}/authmgr" if issuer is None else checked_url("issuer", issuer)
        self._url = f"{root}/token"
        # Both are form-encoded first (RFC 6749 section 2.3.1).
        self._basic = httpx2.BasicAuth(quote_plus(client_id), quote_plus(client_secret))
        form = {"grant_type": "client_credentials", "scope": scope, "resource": resource}
        self._form = {name: value for name, value in form.items() if value}
        self._origins = {origin_of(each) for each in ([resource or base_url] if origins is None else origins)}
        self.http = http or shared_http()
        self._request = SingleFlight[str]()
        # The token, its start and its end.
        self._known = "", 0.0, 0.0

    def token(self, *, rejected: str | None = None) -> str:
        """Return a token; a new one if the last one expires soon or was `rejected`. Raises ApiError, InvalidResponse.

        One that was issued a few seconds ago is not replaced: an API that rejects it would reject the next one too.
        """
        return self._usable(rejected) or self._request.run(lambda: self._usable(rejected) or self._new())

    def _usable(self, rejected: str | None) -> str | None:
        token, start, end = self._known
        now = time.monotonic()
        return token if token and now < end and (token != rejected or now < start + NEW) else None

    def _new(self) -> str:
        response = self.http.post(self._url, data=self._form, auth=self._basic, follow_redirects=False)
        said = fields_of(response, access_token=str, expires_in=(int, float))
        now, lifetime = time.monotonic(), float(said["expires_in"])
        self._known = said["access_token"], now, now + lifetime - min(LEEWAY, lifetime / 2)
        return str(said["access_token"])

    def _check_origin(self, url: httpx2.URL) -> None:
        if origin_of(url) not in self._origins:
            raise IdentityError(f"The token is not sent to {url.host}. Name its origin in `origins` if it may get it.")

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Authorize a request; repeat it once with a new token if the token was revoked."""
        self._check_origin(request.url)
        token = self.token()
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if is_token_rejected(response):
            fresh = self.token(rejected=token)
            if fresh != token:
                request.headers["Authorization"] = f"Bearer {fresh}"
                yield request

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Do the same without blocking the event loop."""
        self._check_origin(request.url)
        token = await asyncio.to_thread(self.token)
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if is_token_rejected(response):
            fresh = await asyncio.to_thread(self.token, rejected=token)
            if fresh != token:
                request.headers["Authorization"] = f"Bearer {fresh}"
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
        self._url = f"{checked_url('base_url', base_url).rstrip('/')}/exsvc/api/v1/services"
        self._credentials = credentials

    def credentials(self, service: str) -> list[ServiceCredential]:
        """Return the active credentials of the service with this name. Every read is audited. Raises ApiError."""
        # The filter ignores case; a tenant may have services whose names differ in nothing else.
        found = [each for each in self._get("", name=service, limit="100")["services"] if each["name"] == service]
        if len(found) != 1:
            problem = "has no service" if not found else "has several services"
            raise IdentityError(f"The tenant {problem} with the name {service!r}.")
        said = self._get(f"/{quote(found[0]['id'], safe='')}/credentials")
        names = ("id", "name", "type", "secret", "expires_at", "metadata")
        return [
            ServiceCredential(base_url=said["base_url"], **{name: each[name] for name in names})
            for each in said["credentials"]
        ]

    def _get(self, path: str, **params: str) -> Any:
        return json_of(self._credentials.http.get(self._url + path, params=params, auth=self._credentials))

    def credential(self, service: str, name: str) -> ServiceCredential:
        """Return one active credential by the names of the service and its own."""
        for each in self.credentials(service):
            if each.name == name:
                return each
        raise IdentityError(f"The service {service!r} has no active credential with the name {name!r}.")

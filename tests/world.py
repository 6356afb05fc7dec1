"""Tools of the tests: an HTTP client for the API, and tenants with users, created through the platform's own actions."""

import ipaddress
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from django.db import connections
from django.test import Client
from django.test.client import ClientHandler
from django.test.utils import override_settings
from django_ratelimit.core import _get_window

from identity_platform.api.client_address import network_of
from tenants.models import Tenant
from userflow.sessions import signing
from userflow.tenants.actions import NewTenant, open_tenant

PASSWORD = "correct horse 9 battery"


# Shared by all clients: each new handler would load every middleware again, and walk all static files for it.
_handler = ClientHandler(enforce_csrf_checks=False)


def _client() -> Client:
    client = Client(raise_request_exception=False)
    client.handler = _handler
    return client


def window_left(key: str, period: int) -> float:
    """For how many seconds the present window of a limit goes on counting for `key`."""
    return float(_get_window(key, period) - time.time())


_given: set[str] = set()


def some_address() -> str:
    """An address of the private ranges that no other test has.

    The windows in which limits count for it have just begun or last for long, so that none ends in the middle of a test.
    """
    for _ in range(1000):
        # Not of `random`, which Hypothesis seeds: each of its examples would come from the same address.
        address = str(ipaddress.IPv4Address(0x0A000000 + secrets.randbits(24)))
        lasting = all(window_left(network_of(address), period) > 40 for period in (60, 600, 3600))
        if lasting and address not in _given:
            break
    _given.add(address)
    return address


@dataclass
class Api:
    """A client of the public API: JSON over HTTP, in this process, from an IP address of its own."""

    token: str | None = None
    address: str = field(default_factory=some_address)
    client: Client = field(default_factory=_client)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        raw: bytes | None = None,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
        query: dict[str, Any] | None = None,
    ) -> Any:
        """Send one request; `body` as JSON, or `raw` as it is. The response has `.json()`, `.status_code`, `.headers`."""
        sent = dict(headers or {})
        bearer = token if token is not None else self.token
        if bearer:
            sent.setdefault("Authorization", f"Bearer {bearer}")
        data: Any = raw if raw is not None else ("" if body is None else json.dumps(body))
        return self.client.generic(
            method.upper(),
            path,
            data,
            content_type=content_type if data else "",
            headers=sent,
            query_params=query or {},
            REMOTE_ADDR=self.address,
        )

    def get(self, path: str, query: dict[str, Any] | None = None, **how: Any) -> Any:
        return self.call("GET", path, query=query, **how)

    def post(self, path: str, body: Any = None, **how: Any) -> Any:
        return self.call("POST", path, body, **how)

    def put(self, path: str, body: Any = None, **how: Any) -> Any:
        return self.call("PUT", path, body, **how)

    def patch(self, path: str, body: Any = None, **how: Any) -> Any:
        return self.call("PATCH", path, body, **how)

    def delete(self, path: str, body: Any = None, **how: Any) -> Any:
        return self.call("DELETE", path, body, **how)


@dataclass(frozen=True)
class Person:
    """An end user or admin user who can sign in."""

    id: UUID
    email: str
    username: str = ""
    password: str = PASSWORD


@dataclass
class TestTenant:
    """A tenant with its default client and one admin, and what tests do in it."""

    __test__ = False

    made: NewTenant
    admin: Person
    api: Api
    signed_in_at: float = field(default_factory=time.monotonic)

    @property
    def row(self) -> Tenant:
        return self.made.tenant

    @property
    def id(self) -> UUID:
        return self.row.pk

    @property
    def slug(self) -> str:
        return self.row.slug

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def client_id(self) -> UUID:
        return self.made.client_id

    def renew_token(self) -> None:
        """Sign the admin in again if the last sign-in is older than seven minutes."""
        if time.monotonic() - self.signed_in_at > 7 * 60:
            self.api.token = sign_in_admin(self.admin.username)["access_token"]
            self.signed_in_at = time.monotonic()

    def register(self, email: str | None = None, **members: Any) -> Person:
        """Register an end user through the public API."""
        address = email or f"user-{secrets.token_hex(6)}@example.com"
        body = {
            "tenant_id": str(self.id),
            "client_id": str(self.client_id),
            "email": address,
            "password": PASSWORD,
            "name": "Some One",
            **members,
        }
        answer = Api().post("/uflow/user/clients/register", body)
        assert answer.status_code == 201, answer.content
        return Person(UUID(answer.json()["user_id"]), address)

    def sign_in(self, person: Person) -> dict[str, Any]:
        """Return an end user's login response."""
        body = {"client_id": str(self.client_id), "email": person.email, "password": person.password}
        answer = Api().post("/uflow/auth/enduser/login", body)
        assert answer.status_code == 200, answer.content
        return dict(answer.json())

    def as_user(self, person: Person) -> Api:
        """An API client with an end user's token."""
        return Api(token=self.sign_in(person)["access_token"])


def sign_in_admin(username: str, password: str = PASSWORD) -> dict[str, Any]:
    """Return an admin user's login response."""
    answer = Api().post("/uflow/admin/auth/login", {"username": username, "password": password})
    assert answer.status_code == 200, answer.content
    return dict(answer.json())


def build_tenant(name: str = "tenant") -> TestTenant:
    """A new tenant, its database ready, its admin signed in."""
    mark = secrets.token_hex(5)
    admin = Person(uuid4(), f"admin-{mark}@example.com", f"admin-{mark}")
    made = open_tenant(
        name=f"{name} {mark}",
        slug=f"{name}-{mark}",
        admin={"username": admin.username, "email": admin.email, "password": PASSWORD},
    )
    assert made.admin is not None
    token = sign_in_admin(admin.username)["access_token"]
    return TestTenant(made, Person(made.admin.pk, admin.email, admin.username), Api(token=token))


def populate(tenant: TestTenant) -> TestTenant:
    """Give a shared tenant two of each thing, so that a query that lacks a condition returns too many rows."""
    for _ in range(2):
        mark = secrets.token_hex(5)
        service = {"name": f"service {mark}", "type": "crm", "base_url": "https://crm.example.com"}
        made = created(tenant.api.post("/exsvc/api/v1/services", service))
        created(tenant.api.post(f"/exsvc/api/v1/services/{made['id']}/credentials", {"name": "key", "secret": mark}))
        client = {"name": f"client {mark}", "type": "confidential", "scopes": ["services:read"]}
        created(tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", client))
        with override_settings(WEBHOOK_ALLOWED_NETWORKS=["127.0.0.0/8"], WEBHOOK_PLAIN_HTTP=True):
            # For an event that no test of a shared tenant causes: nothing waits there to be sent.
            endpoint = {"url": f"http://127.0.0.1:9/{mark}", "events": ["import.finished"]}
            created(tenant.api.post("/uflow/webhooks/endpoints", endpoint))
        admin = {"username": f"colleague-{mark}", "email": f"colleague-{mark}@example.com", "password": PASSWORD}
        created(tenant.api.post("/uflow/admin/users", {**admin, "first_name": "A", "last_name": "B"}))
        sign_in_admin(admin["username"])
        tenant.sign_in(tenant.register())
    return tenant


def created(answer: Any) -> dict[str, Any]:
    """The body of a 201."""
    assert answer.status_code == 201, answer.content
    return dict(answer.json())


@dataclass
class Statements:
    """The SQL that ran, by home. BEGIN, COMMIT and savepoints are not in it."""

    shared: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)

    @property
    def counts(self) -> tuple[int, int]:
        """How many ran on the global database and how many in tenant databases."""
        return len(self.shared), len(self.own)


@contextmanager
def statements() -> Iterator[Statements]:
    """Record the statements of this thread; needs no open connection, so no tenant has to be entered."""
    # The process reads the signing keys again every few seconds: just now, and not in the middle.
    signing.forget()
    signing.key_set()
    seen = Statements()

    def recording(into: list[str]) -> Any:
        def run(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            into.append(sql)
            return execute(sql, params, many, context)

        return run

    with (
        connections["default"].execute_wrapper(recording(seen.shared)),
        connections["tenant"].execute_wrapper(recording(seen.own)),
    ):
        yield seen

"""An HTTP client for the API, and tenants with users created through the platform's own actions."""

import ipaddress
import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from django.db import connections
from django.test import Client
from django.test.client import ClientHandler
from django.test.utils import override_settings
from django_ratelimit.core import _get_window

from identity_platform.api.client_address import network_of
from tenants.models import Tenant
from tests.openapi.document import undocumented_code
from userflow.sessions import signing
from userflow.tenants.actions import NewTenant, open_tenant

PASSWORD = "correct horse 9 battery"


# Shared by all clients: each new handler loads every middleware, and the static files are listed for it.
_handler = ClientHandler(enforce_csrf_checks=False)


def reload_middleware() -> None:
    """Load the middleware again at the next request, after a change of settings that some of it reads when it is loaded."""
    _handler._middleware_chain = None


def new_client(*, raise_request_exception: bool = True, **defaults: str) -> Client:
    """Return Django's test client, with the shared handler."""
    client = Client(raise_request_exception=raise_request_exception, **defaults)
    client.handler = _handler
    return client


def seconds_left_in_window(key: str, period: int) -> float:
    """Return the seconds until the current rate-limit window of `key` ends."""
    return float(_get_window(key, period) - time.time())


_used_ips: set[str] = set()


def unique_ip() -> str:
    """Return a private address that no other test uses.

    No rate-limit window of the address ends within the next 40 seconds, so none ends in the middle of a test.
    """
    for _ in range(1000):
        # Not `random`: Hypothesis seeds it, so every example would get the same address.
        address = str(ipaddress.IPv4Address(0x0A000000 + secrets.randbits(24)))
        is_stable = all(seconds_left_in_window(network_of(address), period) > 40 for period in (60, 600, 3600))
        if is_stable and address not in _used_ips:
            break
    _used_ips.add(address)
    return address


def require_documented(method: str, path: str, response: Any) -> None:
    """Require that the API document lists the code of an error for this operation."""
    if response.status_code >= 400 and response.content and response.headers.get("Content-Type") == "application/json":
        missing = undocumented_code(method, path, response.status_code, response.json())
        assert missing is None, f"The document of {method} {path} does not list {missing}."


# What restores the state that other tests rely on, after each test in reverse order.
undo_after_test: list[Callable[[], object]] = []


@dataclass
class Api:
    """A client of the public API: JSON over HTTP, in this process, from its own IP address."""

    token: str | None = None
    address: str = field(default_factory=unique_ip)
    client: Client = field(default_factory=partial(new_client, raise_request_exception=False))

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
        """Send one request with `body` as JSON, or with `raw` unchanged."""
        all_headers = dict(headers or {})
        bearer = token if token is not None else self.token
        if bearer:
            all_headers.setdefault("Authorization", f"Bearer {bearer}")
        data: Any = raw if raw is not None else ("" if body is None else json.dumps(body))
        response = self.client.generic(
            method.upper(),
            path,
            data,
            content_type=content_type if data else "",
            headers=all_headers,
            query_params=query or {},
            REMOTE_ADDR=self.address,
        )
        # At another host the same path can be another endpoint, or none.
        if "Host" not in all_headers:
            require_documented(method, path, response)
        return response

    def get(self, path: str, query: dict[str, Any] | None = None, **options: Any) -> Any:
        return self.call("GET", path, query=query, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        return self.call("POST", path, body, **options)

    def put(self, path: str, body: Any = None, **options: Any) -> Any:
        return self.call("PUT", path, body, **options)

    def patch(self, path: str, body: Any = None, **options: Any) -> Any:
        return self.call("PATCH", path, body, **options)

    def delete(self, path: str, body: Any = None, **options: Any) -> Any:
        return self.call("DELETE", path, body, **options)


@dataclass(frozen=True)
class User:
    """An end user or admin user who can sign in."""

    id: UUID
    email: str
    username: str = ""
    password: str = PASSWORD


@dataclass
class TestTenant:
    """A tenant with its default client and one admin."""

    __test__ = False

    opened: NewTenant
    admin: User
    api: Api
    signed_in_at: float = field(default_factory=time.monotonic)

    @property
    def row(self) -> Tenant:
        return self.opened.tenant

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
        return self.opened.client_id

    def renew_token(self) -> None:
        """Sign the admin in again if the last sign-in is more than seven minutes ago."""
        if time.monotonic() - self.signed_in_at > 7 * 60:
            self.api.token = sign_in_admin(self.admin.username)["access_token"]
            self.signed_in_at = time.monotonic()

    def register(self, email: str | None = None, **fields: Any) -> User:
        """Register an end user through the public API."""
        address = email or f"user-{secrets.token_hex(6)}@example.com"
        body = {
            "tenant_id": str(self.id),
            "client_id": str(self.client_id),
            "email": address,
            "password": PASSWORD,
            "name": "Some One",
            **fields,
        }
        response = Api().post("/uflow/user/clients/register", body)
        assert response.status_code == 201, response.content
        return User(UUID(response.json()["user_id"]), address)

    def sign_in(self, person: User) -> dict[str, Any]:
        """Return an end user's login response."""
        body = {"client_id": str(self.client_id), "email": person.email, "password": person.password}
        response = Api().post("/uflow/auth/enduser/login", body)
        assert response.status_code == 200, response.content
        return dict(response.json())

    def as_user(self, person: User) -> Api:
        """Return an API client with an end user's token."""
        return Api(token=self.sign_in(person)["access_token"])


def sign_in_admin(username: str, password: str = PASSWORD) -> dict[str, Any]:
    """Return an admin user's login response."""
    response = Api().post("/uflow/admin/auth/login", {"username": username, "password": password})
    assert response.status_code == 200, response.content
    return dict(response.json())


# Those of the fixtures `tenant` and `other_tenant`.
shared_tenants: list[TestTenant] = []


@contextmanager
def tokens_of_other_issuer() -> Iterator[None]:
    """Sign the shared admins in under the issuer that a test has just set; their own tokens are in use again afterwards."""
    usual = [(shared.api, shared.api.token) for shared in shared_tenants]
    for shared in shared_tenants:
        shared.api.token = sign_in_admin(shared.admin.username)["access_token"]
    try:
        yield
    finally:
        for api, token in usual:
            api.token = token


def build_tenant(name: str = "tenant", *, server: str | None = None) -> TestTenant:
    """Create a tenant with its database, on that server if one is named, and sign its admin in."""
    mark = secrets.token_hex(5)
    admin = User(uuid4(), f"admin-{mark}@example.com", f"admin-{mark}")
    opened = open_tenant(
        name=f"{name} {mark}",
        slug=f"{name}-{mark}",
        server=server,
        admin={"username": admin.username, "email": admin.email, "password": PASSWORD},
    )
    assert opened.admin is not None
    token = sign_in_admin(admin.username)["access_token"]
    return TestTenant(opened, User(opened.admin.pk, admin.email, admin.username), Api(token=token))


def populate(tenant: TestTenant) -> TestTenant:
    """Create two of each kind of record, so that a query without a condition returns too many rows."""
    for _ in range(2):
        mark = secrets.token_hex(5)
        body = {"name": f"service {mark}", "type": "crm", "base_url": "https://crm.example.com"}
        service = assert_created(tenant.api.post("/exsvc/api/v1/services", body))
        assert_created(
            tenant.api.post(f"/exsvc/api/v1/services/{service['id']}/credentials", {"name": "key", "secret": mark})
        )
        client = {"name": f"client {mark}", "type": "confidential", "scopes": ["services:read"]}
        assert_created(tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", client))
        with override_settings(WEBHOOK_ALLOWED_NETWORKS=["127.0.0.0/8"], WEBHOOK_PLAIN_HTTP=True):
            # No test causes this event in a shared tenant, so nothing is delivered.
            endpoint = {"url": f"http://127.0.0.1:9/{mark}", "events": ["import.finished"]}
            assert_created(tenant.api.post("/uflow/webhooks/endpoints", endpoint))
        admin = {"username": f"colleague-{mark}", "email": f"colleague-{mark}@example.com", "password": PASSWORD}
        assert_created(tenant.api.post("/uflow/admin/users", {**admin, "first_name": "A", "last_name": "B"}))
        sign_in_admin(admin["username"])
        tenant.sign_in(tenant.register())
    return tenant


def assert_created(response: Any) -> dict[str, Any]:
    """Assert a 201 and return its body."""
    assert response.status_code == 201, response.content
    return dict(response.json())


@dataclass
class CapturedStatements:
    """The SQL that ran, by database alias, without BEGIN, COMMIT and savepoints."""

    default: list[str] = field(default_factory=list)
    tenant: list[str] = field(default_factory=list)

    @property
    def counts(self) -> tuple[int, int]:
        """Return the number of statements on the global database and on tenant databases."""
        return len(self.default), len(self.tenant)


@contextmanager
def capture_statements() -> Iterator[CapturedStatements]:
    """Record the SQL of this thread. No tenant has to be open."""
    # A process reads an owner's signing keys again every few seconds: not while statements are counted.
    for owner, keys in list(signing._sets.items()):
        signing._sets[owner] = replace(keys, read_at=time.monotonic())
    captured = CapturedStatements()

    def record_into(into: list[str]) -> Any:
        def run(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            into.append(sql)
            return execute(sql, params, many, context)

        return run

    with (
        connections["default"].execute_wrapper(record_into(captured.default)),
        connections["tenant"].execute_wrapper(record_into(captured.tenant)),
    ):
        yield captured

"""Requests of end users and applications while the global database is away."""

import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from django.db import connection

from tenants.journals import deliveries
from tests.machine.conftest import within
from tests.openid.sign_in_domains import sign_in_domain
from tests.registry.processes import Server
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.userflow.sessions.clients import basic, make_client
from tests.world import PASSWORD, Api, TestTenant, User
from userflow.user_index.actions import compare

pytestmark = pytest.mark.timeout(600)
PROFILE, TOKEN = "/authmgr/profile", "/authmgr/token"
REGISTER, FORGOT = "/uflow/user/clients/register", "/uflow/auth/enduser/password/forgot"


@contextmanager
def outage() -> Iterator[None]:
    """Close the global database to everyone."""
    name = str(connection.settings_dict["NAME"])
    parameters = connection.get_connection_params()
    connection.close()
    with psycopg.connect(**parameters | {"dbname": "postgres"}, autocommit=True) as raw:
        raw.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        try:
            raw.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            yield
        finally:
            raw.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
            connection.close()
            # A pooler tries a database that was away again after some seconds only.
            assert within(60, lambda: accepts_connections(parameters))


def accepts_connections(parameters: dict[str, Any]) -> bool:
    with suppress(psycopg.OperationalError), psycopg.connect(**parameters) as raw:
        return raw.execute("SELECT 1").fetchone() == (1,)
    return False


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start a server with one worker, whose leases expire after six seconds."""
    started: list[Server] = []

    def begin(**more: str) -> Server:
        log = tmp_path / f"{len(started)}.log"
        more = {"TRUSTED_PROXY_HOPS": "1", **more}
        started.append(Server(log, 1, DJANGO_SETTINGS_MODULE="tests.tenants.leasing.short_leases", **more))
        started[-1].wait()
        return started[-1]

    yield begin
    for server in started:
        server.end()


class Caller:
    """An end user and a client, at a server."""

    def __init__(self, server: Server, tenant: TestTenant, user: User, client: dict[str, Any]) -> None:
        self.server, self.tenant, self.user, self.client = server, tenant, user, client
        self.headers: dict[str, str] = {}
        self._addresses = itertools.count(1)

    def login(self, email: str) -> dict[str, Any]:
        body = {"client_id": str(self.tenant.client_id), "email": email, "password": PASSWORD}
        response = self.server.call("POST", "/uflow/auth/enduser/login", body, headers=self.headers)
        assert response.status_code == 200, response.content
        pair: dict[str, Any] = response.json()
        return pair

    def requests(self) -> dict[str, int]:
        """Return the status of each kind of request."""
        # Each time from another address: no limit is reached.
        self.headers = {"X-Forwarded-For": f"203.0.113.{next(self._addresses)}"}
        pair = self.login(self.user.email)
        bearer = {"Authorization": f"Bearer {pair['access_token']}"}
        refreshing = {"grant_type": "refresh_token", "refresh_token": pair["refresh_token"]}
        secret = basic(self.client)
        statuses = {
            "profile": self.server.call("GET", PROFILE, headers={**self.headers, **bearer}).status_code,
            "refresh": self._form(TOKEN, refreshing | {"client_id": str(self.tenant.client_id)}),
            "client token": self._form(TOKEN, {"grant_type": "client_credentials"}, secret),
            "introspection": self._form("/authmgr/token/introspect", {"token": pair["access_token"]}, secret),
        }
        person = f"user-{secrets.token_hex(6)}@example.com"
        whose = {"tenant_id": str(self.tenant.id), "client_id": str(self.tenant.client_id), "email": person}
        statuses |= {
            "sessions": self.server.call("GET", "/authmgr/sessions", headers={**self.headers, **bearer}).status_code,
            "own name": self._change("PUT", PROFILE, {"name": "Another"}, bearer),
            "registration": self._change("POST", REGISTER, {**whose, "password": PASSWORD, "name": "X"}, {}),
            "forgotten password": self._change("POST", FORGOT, {"email": person, "client_id": whose["client_id"]}, {}),
            "logout": self._change("POST", "/authmgr/logout", {}, bearer),
        }
        # A new user, who has begun no other enrollment in the last hour.
        newcomer = {"Authorization": f"Bearer {self.login(person)['access_token']}"}
        statuses["factor"] = self._change("POST", "/webauthn/totp/beginSetup", whose, newcomer)
        statuses["ready"] = self.server.call("GET", "/uflow/ready").status_code
        for path in ("jwks", ".well-known/openid-configuration", "signin"):
            statuses[path] = self.server.call("GET", f"/t/{self.tenant.slug}/{path}", headers=self.headers).status_code
        return statuses

    def _change(self, method: str, path: str, body: dict[str, str], authorization: dict[str, str]) -> int:
        status = self.server.call(method, path, body, headers={**self.headers, **authorization}).status_code
        return 200 if status == 201 else status

    def _form(self, path: str, fields: dict[str, str], headers: dict[str, str] | None = None) -> int:
        line = self.server.line()
        encoded = {"Content-Type": "application/x-www-form-urlencoded", **self.headers, **(headers or {})}
        line.request("POST", path, urlencode(fields), encoded)
        status = line.getresponse().status
        line.close()
        return status


@pytest.fixture
def caller(start: Callable[..., Server], new_tenant: Callable[[], TestTenant]) -> Caller:
    tenant = new_tenant()
    caller = Caller(start(), tenant, tenant.register(), make_client(tenant))
    assert_served(caller)
    return caller


def assert_served(caller: Caller) -> None:
    statuses = caller.requests()
    assert statuses == dict.fromkeys(statuses, 200)


def test_users_and_applications_are_served(caller: Caller, operator: Api) -> None:
    with outage():
        # Longer than a lease.
        end = time.monotonic() + 10
        while time.monotonic() < end:
            assert_served(caller)
        began = time.monotonic()
        managing = caller.server.call("GET", f"/uflow/admin/tenants/{caller.tenant.id}", token=operator.token)
        assert (managing.status_code, time.monotonic() - began < 3) == (503, True)
    assert_served(caller)
    # Who has registered meanwhile is in the console's search.
    assert deliveries.deliver_all(tenants=[caller.tenant.id]) == []
    assert compare(caller.tenant.id, dry_run=True).total == 0


def test_process_that_starts_serves_what_others_have_shared(caller: Caller, start: Callable[..., Server]) -> None:
    with outage():
        caller.server = start()
        assert_served(caller)


def test_unknown_names_are_unavailable(caller: Caller) -> None:
    with outage():
        assert caller.server.call("GET", "/t/another/jwks").status_code == 503
    assert caller.server.call("GET", "/t/another/jwks").status_code == 404


def test_domains_lead_to_their_tenant(caller: Caller, name_server: DnsServer) -> None:
    former, present = (sign_in_domain(caller.tenant, name_server) for _ in range(2))

    def statuses() -> list[int]:
        return [caller.server.call("GET", "/signin", headers={"Host": row["domain"]}).status_code for row in rows]

    rows = (present, former)
    assert statuses() == [200, 302]
    with outage():
        assert statuses() == [200, 302]
        unknown = caller.server.call("GET", "/signin", headers={"Host": "another.example"})
        assert unknown.status_code == 503

"""The platform on which `alert_causes` makes alerts fire, from a process with the same settings."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from http.client import HTTPConnection
from typing import Any, Final
from uuid import uuid4

import psycopg
from django.core.management import call_command
from django.db.models.functions import Now
from django.utils.timezone import now
from psycopg import sql

from identity_platform.task_queue import run_soon
from tenants import tasks
from tenants.backend.leases import uses
from tenants.database_servers import servers
from tenants.models import ConnectionLease, DatabaseServer, ServerHealth, TenantDatabase, WarmDatabase
from tests.machine.conftest import within
from userflow.tenants.actions import NewTenant, open_tenant

PASSWORD: Final = "correct horse 9 battery"


class Installation:
    """The platform at a port of this machine, and two of its tenants. The database of `other` becomes unreadable."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.threads = ThreadPoolExecutor(32)
        self.tenant = open_with_slug(
            "acme", admin={"username": "ann", "email": "ann@example.com", "password": PASSWORD}
        )
        self.other = open_with_slug("other")
        assert within(60, lambda: WarmDatabase.objects.filter(ready=True).exists())
        call_command("backup_tenants", test=0)
        check_servers()

    def request(self, method: str, path: str, body: object = None, *, token: str = "") -> tuple[int, Any]:
        """Return the status and the body of the platform's response."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        content = json.loads(response.read())
        connection.close()
        return response.status, content

    def sign_in(self, tenant: NewTenant) -> int:
        """Return the status of a sign-in with an address that no user has."""
        body = {"client_id": str(tenant.client_id), "email": f"{uuid4().hex}@example.com", "password": PASSWORD}
        return self.request("POST", "/uflow/auth/enduser/login", body)[0]

    def list_users(self) -> int:
        """Return the status of a request that reads the users of the tenant."""
        return self.request("GET", f"/uflow/user/enduser/list?tenant_id={self.tenant.tenant.pk}", token=self.token)[0]

    def import_user(self) -> int:
        """Return the status of a request that imports a user."""
        rows = [{"email": f"{uuid4().hex}@example.com"}]
        body = {"tenant_id": str(self.tenant.tenant.pk), "rows": rows}
        return self.request("POST", "/uflow/admin/enduser/import", body, token=self.token)[0]

    def start(self, number: int, request: Callable[[], int]) -> list[Future[int]]:
        """Send so many requests at once."""
        return [self.threads.submit(request) for _ in range(number)]

    @cached_property
    def token(self) -> str:
        body = {"username": "ann", "password": PASSWORD}
        return str(self.request("POST", "/uflow/admin/auth/login", body)[1]["access_token"])


def open_with_slug(slug: str, **options: Any) -> NewTenant:
    return open_tenant(name=slug, slug=slug, **options)


def check_servers() -> None:
    """Let the worker check the database servers, as it does each minute."""
    began = now()
    run_soon(tasks.CHECK)
    number = DatabaseServer.objects.count()
    assert within(20, lambda: ServerHealth.objects.filter(checked_at__gt=began).count() == number)


def connect(database: str = "postgres", *, autocommit: bool = True) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(os.environ["DATABASE_URL"], dbname=database, autocommit=autocommit)


def database_of(tenant: NewTenant) -> str:
    return TenantDatabase.objects.values_list("name", flat=True).get(pk=tenant.tenant.pk)


def end_connections(raw: psycopg.Connection[tuple[Any, ...]], database: str) -> None:
    raw.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database])


@contextmanager
def without_connections(database: str) -> Iterator[None]:
    """Let a database end its connections and accept none."""
    change = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    with connect() as raw:
        raw.execute(change.format(sql.Identifier(database), sql.SQL("false")))
        end_connections(raw, database)
        try:
            yield
        finally:
            raw.execute(change.format(sql.Identifier(database), sql.SQL("true")))


@contextmanager
def locked_users(installation: Installation) -> Iterator[Callable[[], int]]:
    """Lock the table of the tenant's users, as a long migration does; yield what returns how many statements wait."""
    # Before the lock: signing in reads it.
    assert installation.list_users() == 200
    with connect(database_of(installation.tenant), autocommit=False) as raw:
        raw.execute("LOCK TABLE userflow_enduser IN ACCESS EXCLUSIVE MODE")
        waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'userflow_enduser'::regclass AND NOT granted"
        yield lambda: int(raw.execute(waiting).fetchall()[0][0])


@contextmanager
def leased(part: float) -> Iterator[None]:
    """Lease this part of the main server's connections, together with what is leased already, as another host does."""
    server = DatabaseServer.objects.get(name=servers.MAIN)
    use = uses([server.pk])[server.pk]
    lease = ConnectionLease.objects.create(
        process=uuid4(), server=server, host="elsewhere", pid=1, command="", global_connections=0,
        connections=math.ceil(use.limit * part) - use.taken, expires_at=Now() + timedelta(minutes=5),
    )  # fmt: skip
    try:
        yield
    finally:
        lease.delete()

"""What a server writes to its log."""

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from uuid import uuid4

import jwt
import psycopg
import pytest
from psycopg import sql

from console.signin.models import BrowserSession
from tests.machine.conftest import ROOT, Holder, Platform, within
from tests.registry.conftest import as_client
from tests.registry.processes import Server, environment
from tests.tenants.conftest import connect_to
from tests.world import PASSWORD, Api, TestTenant

LINES, CLIENTS = 10_000, 24


@contextmanager
def without_sessions(home: Path) -> Iterator[None]:
    """Pages fail while the table of the console's sessions has another name."""
    holder = Holder(home)
    there, away = sql.Identifier(BrowserSession._meta.db_table), sql.Identifier("away")
    rename = sql.SQL("ALTER TABLE {} RENAME TO {}")
    try:
        with psycopg.connect(holder.database_url, autocommit=True) as raw:
            raw.execute(rename.format(there, away))
            try:
                yield
            finally:
                raw.execute(rename.format(away, there))
    finally:
        holder.leave()


def test_a_fault_of_a_page_is_in_the_log_without_what_was_asked(
    settled_home: Path, serve: Callable[..., Platform]
) -> None:
    platform = serve(settled_home, WEB_WORKERS="1")
    cookie = {"Cookie": f"sessionid={'hidden-cookie'.ljust(32, 'x')}"}
    with without_sessions(settled_home):
        connection = HTTPConnection("127.0.0.1", platform.port, timeout=30)
        connection.request("GET", "/admin/?secret=hidden-word", headers=cookie)
        assert connection.getresponse().status == 500

    def faults() -> list[dict[str, object]]:
        lines = [json.loads(line) for line in platform.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == "fault"]

    assert within(10, lambda: faults() != [])
    (fault,) = faults()
    assert (fault["kind"], fault["level"]) == ("ProgrammingError", "error")
    assert "console.signin.store:load" in str(fault["trace"])
    assert "hidden" not in platform.log.read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[Server]:
    """A server of two processes whose log is one file."""
    started = Server(tmp_path_factory.mktemp("server") / "server.log", 2, WEB_THREADS="16", PYTHONUNBUFFERED="1")
    started.wait()
    yield started
    started.end()


def logged(server: Server, event: str, **about: str) -> dict[str, Any]:
    """The one line of this event with these fields, once it is written."""

    def found() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event and about.items() <= line.items()]

    assert within(10, lambda: found() != [])
    (line,) = found()
    return line


@pytest.mark.nightly
def test_ten_thousand_parallel_lines_are_one_object_each(server: Server) -> None:
    before, numbers = len(server.log.read_bytes()), itertools.count()
    types = {"Content-Type": "application/x-www-form-urlencoded"}

    def send(_: int) -> None:
        connection = server.line()
        # Each is two lines: that of the request, and one of Django's own logger about a forged form.
        while next(numbers) < LINES / 2:
            connection.request("POST", "/admin/login/", headers=types)
            connection.getresponse().read()
        connection.close()

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(send, range(CLIENTS)))
    lines = [json.loads(line) for line in server.log.read_bytes()[before:].decode().splitlines()]
    assert Counter(line["event"].split()[0] for line in lines) == {"request": LINES / 2, "Forbidden": LINES / 2}


# Threads that take turns after each microsecond and log through both libraries.
BUSY = """
import logging, sys, threading
import django
django.setup()
import structlog
sys.setswitchinterval(1e-6)
def work(one, other):
    for number in range(250):
        one.error("ours", number=number)
        other.error("theirs")
threads = [threading.Thread(target=work, args=(structlog.get_logger(), logging.getLogger())) for _ in range(20)]
[thread.start() for thread in threads]
"""


def test_lines_of_both_loggers_are_written_whole(django_db_setup: None) -> None:
    command, variables = [sys.executable, "-c", BUSY], environment(PYTHONUNBUFFERED="1")
    written = subprocess.run(command, env=variables, stderr=subprocess.PIPE, cwd=ROOT, check=True).stderr.decode()
    assert Counter(json.loads(line)["event"] for line in written.splitlines()) == {"ours": 5000, "theirs": 5000}


def test_lines_of_a_pipe_that_is_closed_fail_no_request(django_db_setup: None) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code = "import django; django.setup(); import structlog; structlog.get_logger().error('lost'); print('on')"
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment(), stdout=subprocess.PIPE, stderr=writing, cwd=ROOT, check=False
    )
    os.close(writing)
    assert (ended.returncode, ended.stdout) == (0, b"on\n")


def test_request_line_names_tenant_kind_client_and_address(server: Server, tenant: TestTenant) -> None:
    person, application = tenant.register(), as_client(tenant, "services:read")
    login = {"client_id": str(tenant.client_id), "email": person.email, "password": PASSWORD}
    tenant_id, default, address = str(tenant.id), str(tenant.client_id), "127.0.0.1"
    calls: list[tuple[str, str, Any, str | None, tuple[str, str | None, str | None]]] = [
        ("GET", "/uflow/live", None, None, ("anonymous", None, None)),
        ("GET", "/uflow/admin/users/me", None, tenant.api.token, ("admin", tenant_id, None)),
        ("GET", "/authmgr/validate", None, tenant.as_user(person).token, ("end_user", tenant_id, default)),
        ("POST", "/uflow/auth/enduser/login", login, None, ("end_user", tenant_id, default)),
        ("POST", "/uflow/auth/enduser/login", login | {"password": "x"}, None, ("anonymous", tenant_id, default)),
        ("GET", "/exsvc/api/v1/services", None, application.token, ("client", tenant_id, client_of(application.token))),
    ]
    for method, path, body, token, (kind, of_tenant, client) in calls:
        request_id = uuid4().hex
        server.call(method, path, body, token=token, headers={"X-Request-ID": request_id})
        line = logged(server, "request", request_id=request_id)
        assert (line["kind"], line["tenant"], line["client"], line["address"]) == (kind, of_tenant, client, address)


def test_request_line_names_the_tenant_an_operator_acts_on(server: Server, tenant: TestTenant, operator: Api) -> None:
    request_id = uuid4().hex
    headers = {"X-Request-ID": request_id, "X-Tenant-ID": str(tenant.id)}
    assert server.call("GET", "/exsvc/api/v1/services", token=operator.token, headers=headers).status_code == 200
    line = logged(server, "request", request_id=request_id)
    assert (line["kind"], line["tenant"]) == ("operator", str(tenant.id))


def test_database_unavailable_names_server_tenant_and_error(server: Server, tenant: TestTenant) -> None:
    request_id = uuid4().hex
    path = f"/uflow/user/enduser/list?tenant_id={tenant.id}"
    with full_disk(tenant):
        response = server.call("GET", path, token=tenant.api.token, headers={"X-Request-ID": request_id})
    assert response.status_code == 503
    line = logged(server, "database_unavailable", request_id=request_id)
    assert (line["server"], line["tenant"]) == ("main", str(tenant.id))
    assert (line["error"], line["sqlstate"]) == ("DiskFull", "53100")
    assert "hidden" not in server.log.read_text()


def client_of(token: str | None) -> str:
    """The client that a token speaks for."""
    return str(jwt.decode(str(token), options={"verify_signature": False})["client_id"])


@contextmanager
def full_disk(tenant: TestTenant) -> Iterator[None]:
    """Reading end users of this tenant fails as it does on a full disk."""
    with connect_to(tenant.row) as raw:
        raw.execute(
            "CREATE FUNCTION full_disk() RETURNS integer LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE disk_full USING MESSAGE = 'hidden'; END $$"
        )
        raw.execute("ALTER TABLE userflow_enduser RENAME TO enduser_kept")
        raw.execute("CREATE VIEW userflow_enduser AS SELECT k.* FROM enduser_kept k, full_disk()")
        try:
            yield
        finally:
            raw.execute("DROP VIEW userflow_enduser")
            raw.execute("ALTER TABLE enduser_kept RENAME TO userflow_enduser")
            raw.execute("DROP FUNCTION full_disk()")

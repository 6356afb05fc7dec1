"""Requests that are rejected before their body is read: the response arrives for every size of the body."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any

import pytest

from tests.registry.processes import Server
from tests.world import TestTenant

REQUESTS, CALLERS = 4500, 6
SIZES = (100, 20_000, 70_000, 150_000, 400_000, 900_000)
SERVICES = "/exsvc/api/v1/services"
HTTPS = {"X-Forwarded-Proto": "https"}
JSON = HTTPS | {"Content-Type": "application/json"}
FORM = HTTPS | {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, tenant: TestTenant) -> Iterator[Server]:
    """A server whose registry limit is used up by one call a minute."""
    log = tmp_path_factory.mktemp("server") / "server.log"
    https = {"SECURE_SSL_REDIRECT": "true", "TRUSTED_PROXY_HOPS": "1"}
    started = Server(log, 2, WEB_THREADS="16", LIMIT_REGISTRY_PER_MINUTE="1", **https)
    started.wait()
    yield started
    started.end()


def test_every_rejection_reaches_its_caller(server: Server, tenant: TestTenant) -> None:
    tokens = (tenant.api.token, None, "broken")
    numbers, heard, deadline = itertools.count(), Counter[int | str](), time.monotonic() + 240
    guard = threading.Lock()

    def send(_: int) -> None:
        connection = server.line()
        while (number := next(numbers)) < REQUESTS and time.monotonic() < deadline:
            token = tokens[number % len(tokens)]
            sent = JSON | ({"Authorization": f"Bearer {token}"} if token else {})
            try:
                connection.request("POST", SERVICES, b"x" * SIZES[number % len(SIZES)], sent)
                response = connection.getresponse()
                response.read()
                outcome: int | str = response.status
            except (OSError, HTTPException) as lost:
                connection.close()
                outcome = type(lost).__name__
            with guard:
                heard[outcome] += 1
        connection.close()

    with ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(send, range(CALLERS)))
    assert (heard.total(), set(heard) - {400, 401, 429}) == (REQUESTS, set()), heard
    assert heard[429] > REQUESTS / 4


BODY = b"x" * 900_000
REJECTIONS: dict[str, tuple[str, str, dict[str, str], int]] = {
    "unknown path": ("POST", "/nowhere", JSON, 404),
    "unknown path, chunked": ("POST", "/nowhere", JSON | {"Transfer-Encoding": "chunked"}, 404),
    "wrong method": ("PATCH", "/uflow/admin/auth/login", JSON, 405),
    "no token": ("POST", "/uflow/admin/users", JSON, 401),
    "wrong type": ("POST", "/uflow/admin/auth/login", HTTPS | {"Content-Type": "text/plain"}, 415),
    "unknown host": ("POST", SERVICES, JSON | {"Host": "elsewhere.example"}, 400),
    "plain http": ("POST", SERVICES, {}, 308),
    "forged form": ("POST", "/admin/login/", FORM, 403),
    "static file": ("POST", "/static/console/icon.svg", HTTPS, 405),
    "documentation": ("POST", "/docs/", HTTPS, 405),
    "page with a body": ("GET", "/docs/", HTTPS, 200),
    "awaited with Expect": ("POST", "/uflow/admin/users", JSON | {"Expect": "100-continue"}, 401),
}


@pytest.mark.parametrize("name", REJECTIONS)
def test_rejected_body_leaves_the_connection_open(server: Server, name: str) -> None:
    method, path, headers, status = REJECTIONS[name]
    connection = server.line()
    body: Any = iter([BODY]) if "Transfer-Encoding" in headers else BODY
    connection.request(method, path, body, headers, encode_chunked="Transfer-Encoding" in headers)
    response = connection.getresponse()
    response.read()
    assert response.status == status
    # A server that has not read the body closes instead, and may take the response with it (RFC 9112 section 9.6).
    connection.auto_open = 0
    connection.request("GET", "/uflow/live")
    assert connection.getresponse().status == 200

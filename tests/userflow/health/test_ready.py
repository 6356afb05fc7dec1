"""Readiness when the global database is missing or hangs."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, connections

from tenants.entering.context import in_tenant
from tests.machine.conftest import within
from tests.world import Api, TestTenant


class Relay:
    """A proxy before PostgreSQL that forwards nothing once it is `hushed`."""

    def __init__(self) -> None:
        self.hushed = False
        stated = settings.DATABASES["default"]
        self.host, self.port = stated["HOST"], int(stated["PORT"] or 5432)
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, far = self.listener.accept()[0], self._server()
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _server(self) -> socket.socket:
        if self.host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self.host}/.s.PGSQL.{self.port}")
            return server
        return socket.create_connection((self.host, self.port))

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not self.hushed:
                    sink.sendall(data)
            sink.close()


@contextmanager
def database_at(host: str, port: int) -> Iterator[None]:
    """Point this thread at a global database with this address inside the block."""
    stated = dict(connection.settings_dict)
    connection.close()
    connection.settings_dict.update(HOST=host, PORT=str(port))
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(stated)


def said_after(api: Api) -> tuple[int, Any, float]:
    began = time.monotonic()
    response = api.get("/uflow/ready")
    return response.status_code, response.json(), time.monotonic() - began


READY = {"status": "ready", "database": "connected", "cache": "connected", "fenced": ""}
DEGRADED = {"status": "degraded", "database": "connected", "cache": "disconnected", "fenced": ""}
WITHOUT_DATABASE = {"status": "degraded", "database": "disconnected", "cache": "connected", "fenced": ""}


@pytest.mark.quiet_machine
def test_ready_reports_hanging_database(api: Api) -> None:
    relay = Relay()
    with database_at(*relay.listener.getsockname()):
        assert within(60, lambda: said_after(api)[:2] == (200, READY))
        relay.hushed = True
        for _ in range(3):  # again where the machine was busy
            status, said, seconds = said_after(api)
            assert (status, said) == (200, WITHOUT_DATABASE)
            if seconds < 3:
                break
    assert seconds < 3
    relay.listener.close()
    assert said_after(api)[:2] == (200, READY)


def test_ready_reports_missing_database(api: Api) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        unused = free.getsockname()
    with database_at(*unused):
        assert said_after(api)[:2] == (200, WITHOUT_DATABASE)


@contextmanager
def cache_at(url: str) -> Iterator[None]:
    """Point the cache at this URL inside the block."""
    stated, settings.REDIS_URL = settings.REDIS_URL, url
    try:
        yield
    finally:
        settings.REDIS_URL = stated


def test_ready_without_cache_is_200_degraded(api: Api) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        host, port = free.getsockname()
    with cache_at(f"redis://{host}:{port}/0"):
        assert said_after(api)[:2] == (200, DEGRADED)
        assert "Retry-After" not in api.get("/uflow/ready").headers
        with database_at(host, port):
            assert said_after(api)[:2] == (200, WITHOUT_DATABASE | {"cache": "disconnected"})
    assert said_after(api)[:2] == (200, READY)


def test_unreachable_server_does_not_block_connections(tenant: TestTenant) -> None:
    connection.ensure_connection()
    with in_tenant(tenant.id):
        connections["tenant"].ensure_connection()
        for alias in ("default", "tenant"):
            assert connections[alias].connection.info.get_parameters()["tcp_user_timeout"] == "2500"

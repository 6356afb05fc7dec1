"""Directories that respond slowly or never block neither a server nor a run forever."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings as given
from django.db import connections

from tests.userflow.directory.conftest import Directory
from tests.userflow.directory.entra import APPLICATION, DIRECTORY, SECRET, Entra
from tests.world import Api, TestTenant


@pytest.fixture
def silent(settings: Any) -> Iterator[list[socket.socket]]:
    """A server that accepts connections and sends nothing."""
    held: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    settings.DIRECTORY_CLOUDS = {"silent": (base, base)}

    def accept() -> None:
        while True:
            try:
                held.append(listener.accept()[0])
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()
    yield held
    listener.close()
    for connection in held:
        connection.close()


def test_parallel_directory_requests_are_limited(
    silent: list[socket.socket], tenant: TestTenant, configured: Callable[..., Directory]
) -> None:
    most = given.WEB_THREADS // 4
    members = {"directory_tenant_id": DIRECTORY, "application_id": APPLICATION, "secret": SECRET, "enabled": False}
    directory = configured(tenant, kind="entra_id", cloud="silent", **members)

    def attempt(_: int) -> int:
        try:
            return int(Api(token=tenant.api.token).post(f"{directory.path}/test").status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(most + 1) as pool:
        waiting = [pool.submit(attempt, number) for number in range(most)]
        while len(silent) < most:
            assert not any(done.done() for done in waiting)
            time.sleep(0.01)
        refused = tenant.api.post(f"{directory.path}/test")
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
        for connection in list(silent):
            connection.close()
        assert {done.result() for done in waiting} == {200}
    tenant.api.delete(directory.path)


def test_sync_request_ends_at_its_deadline(
    settings: Any, tenant: TestTenant, configured: Callable[..., Directory]
) -> None:
    entra = Entra(page=500)
    settings.DIRECTORY_CLOUDS = {"standin": (entra.base, entra.base)}
    settings.DIRECTORY_REQUEST_SECONDS = 0
    directory = configured(tenant, **entra.members())
    for number in range(600):
        entra.add(directory.mail(f"person{number}"))
    cut = directory.sync()
    assert (cut["state"], cut["users_created"], "sync_directory" in cut["reason"]) == ("incomplete", 500, True)
    settings.DIRECTORY_REQUEST_SECONDS = 30
    rest = directory.sync()
    assert (rest["state"], rest["full"], rest["users_created"]) == ("succeeded", True, 100)
    assert tenant.api.delete(directory.path).status_code == 200
    entra.end()

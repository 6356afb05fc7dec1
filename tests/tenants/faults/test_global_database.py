"""The global database hangs or is locked: requests get 503 within three seconds and hold no thread."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import psycopg
import pytest
from django.db import close_old_connections, connection

from tenants.database_servers import servers
from tenants.lifecycle.capacity import main_server
from tests.machine.conftest import within
from tests.world import TestTenant

# Only idle ones: a stopped busy process may hold a lock that the whole server, and other tests, wait for.
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend' AND state = 'idle'"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"


def ask(statement: str) -> list[int]:
    """Return one column of a query on the server's maintenance database."""
    with servers.maintenance(main_server()) as raw:
        return [row[0] for row in raw.execute(statement, [connection.settings_dict["NAME"]]).fetchall()]


@contextmanager
def hanging() -> Iterator[None]:
    """Stop the server processes of the connections, as on a paused machine."""
    stopped = ask(BACKENDS)
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def locked() -> Iterator[None]:
    """Lock a table that every request of an admin reads."""
    with psycopg.connect(**connection.get_connection_params()) as raw:
        raw.execute("LOCK TABLE userflow_adminuser IN ACCESS EXCLUSIVE MODE")
        yield
        # A cancelled statement no longer waits on the server. (Django does this at the start of a request; its
        # test client leaves it out.)
        close_old_connections()
        assert within(5, lambda: ask(WAITING) == [0])


@pytest.mark.quiet_machine
@pytest.mark.parametrize("fault", [hanging, locked])
def test_global_outage_is_503(fault: Callable[[], AbstractContextManager[None]], tenant: TestTenant) -> None:
    for _ in range(3):  # more tries on a busy machine
        assert tenant.api.get("/authmgr/profile").status_code == 200
        with fault():
            began = time.monotonic()
            rejected = tenant.api.get("/authmgr/profile")
            waited = time.monotonic() - began
        assert rejected.status_code == 503
        assert int(rejected.headers["Retry-After"]) >= 1
        close_old_connections()
        if waited < 3:
            break
    assert waited < 3
    assert tenant.api.get("/authmgr/profile").status_code == 200

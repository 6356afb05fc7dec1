"""bin/serve's server: starts, ends and starts again after every kind of end."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psutil
import psycopg
import pytest

from identity_platform.serving.workers import FIRST_PAUSE, WORKER_COMMANDS
from tests.machine.conftest import Holder, Platform, free_port, prepared_home, running, within
from tests.machine.requests import LOGIN, answer, request

Serve = Callable[..., Platform]


def begin(connection: socket.socket, length: int) -> None:
    """A request whose body is waited for: the server that returns "100 Continue" is handling it (RFC 9110 section 10.1.1)."""
    connection.sendall(request(f"Content-Length: {length}", "Expect: 100-continue"))
    said = b""
    while not said.endswith(b"\r\n\r\n"):
        heard = connection.recv(1)
        assert heard, said
        said += heard
    assert said.startswith(b"HTTP/1.1 100 ")


def lives(pid: int, began: float) -> bool:
    """Whether this very process runs still; it may end while it is looked at."""
    try:
        process = psutil.Process(pid)
        return process.create_time() == began and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def platform(settled_home: Path, serve: Serve) -> Platform:
    return serve(settled_home)


@pytest.fixture
def connection(platform: Platform) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", platform.port), timeout=60) as connected:
        yield connected


@pytest.mark.quiet_machine
def test_first_start_from_nothing_and_second_start_in_seconds(home: Path, serve: Serve) -> None:
    platform = serve(home)
    assert within(60, platform.is_ready)
    for _ in range(6):  # again where the machine was busy
        assert platform.end() == 0
        began = time.monotonic()
        platform = serve(home)
        assert within(60, platform.is_ready)
        if (took := time.monotonic() - began) < 10:
            break
    assert took < 10


def test_sigterm_finishes_request_in_flight_and_exits_zero(
    settled_home: Path, platform: Platform, connection: socket.socket
) -> None:
    begin(connection, len(LOGIN))
    connection.sendall(LOGIN[:10])
    platform.process.send_signal(signal.SIGTERM)
    time.sleep(1)
    assert platform.process.poll() is None
    connection.sendall(LOGIN[10:])
    assert answer(connection).startswith("HTTP/1.1 401")
    assert platform.process.wait(timeout=60) == 0
    assert running(settled_home) == []


def test_endless_request_delays_stop_by_ten_seconds_at_most(platform: Platform, connection: socket.socket) -> None:
    begin(connection, 100)
    connection.sendall(b"{")
    began = time.monotonic()
    assert platform.end() == 0
    assert 9 < time.monotonic() - began < 40


def test_ctrl_c_in_a_terminal_ends_it_quietly_with_zero(settled_home: Path, serve: Serve, tmp_path: Path) -> None:
    platform = serve(settled_home)
    assert within(60, platform.is_ready)
    assert platform.end(signal.SIGINT) == 0
    assert running(settled_home) == []
    log = (tmp_path / "platform-0.log").read_text()
    assert "Traceback" not in log
    assert "Unexpected exit" not in log
    # Every worker has finished by itself: none had to be killed after the time for requests in flight.
    assert "was ended" not in log


def test_ctrl_c_while_workers_start_ends_it_quietly_with_zero(settled_home: Path, serve: Serve) -> None:
    platform = serve(settled_home, WEB_WORKERS="4")
    # Between their fork and a process group of their own they hear what the terminal sends.
    assert within(60, lambda: len(platform.workers()) > len(WORKER_COMMANDS))
    assert platform.end(signal.SIGINT) == 0
    assert running(settled_home) == []
    assert "Unexpected exit" not in platform.log.read_text()


def test_kill_9_frees_the_port_and_next_start_works(settled_home: Path, serve: Serve) -> None:
    port = free_port()
    killed = serve(settled_home, port=port, WEB_WORKERS="2")
    # All are there: one that is forked at that very moment would not be looked at.
    assert within(60, lambda: len(killed.named()) == 2 + len(WORKER_COMMANDS))
    started = {(one.pid, one.create_time()) for one in killed.workers()}
    killed.process.kill()
    killed.process.wait()
    next_one = serve(settled_home, port=port)
    assert within(60, next_one.is_ready)
    assert within(30, lambda: not any(lives(*one) for one in started))
    assert next_one.end() == 0
    assert running(settled_home) == []


def test_killed_worker_is_replaced_without_refused_connection(settled_home: Path, serve: Serve) -> None:
    platform = serve(settled_home, WEB_WORKERS="2")

    def answering() -> set[int]:
        """Those that answer, once all are there: the first answers while others are still on their way."""
        assert within(60, lambda: len(platform.named()) == 2 + len(WORKER_COMMANDS) and workers_are_named()), said()
        return {pid for pid, name in platform.named().items() if name not in WORKER_COMMANDS}

    def workers_are_named() -> bool:
        return set(WORKER_COMMANDS) <= set(platform.named().values())

    def said() -> str:
        return f"{platform.named()}\n{platform.log.read_text()}"

    first = answering()
    for number in first:
        os.kill(number, signal.SIGKILL)
        assert platform.get("/uflow/live").status == 200
        assert within(30, lambda number=number: number not in platform.named()), said()
        assert len(answering()) == 2
    assert first.isdisjoint(answering())


def test_workers_killed_at_once_are_all_replaced(settled_home: Path, serve: Serve) -> None:
    platform = serve(settled_home, WEB_WORKERS="4")
    assert within(60, lambda: len(platform.named()) == 4 + len(WORKER_COMMANDS))
    first = {pid for pid, name in platform.named().items() if name not in WORKER_COMMANDS}
    for number in first:
        os.kill(number, signal.SIGKILL)
    assert within(60, lambda: first.isdisjoint(platform.named()) and len(platform.named()) == 4 + len(WORKER_COMMANDS))
    assert platform.get("/uflow/live").status == 200


def test_sigterm_is_heard_while_a_worker_is_replaced(settled_home: Path, platform: Platform) -> None:
    os.kill(next(pid for pid, name in platform.named().items() if name not in WORKER_COMMANDS), signal.SIGKILL)
    assert platform.end() == 0
    assert running(settled_home) == []


def test_connections_that_the_database_has_ended_cost_no_request(settled_home: Path, serve: Serve) -> None:
    # In a server of its own: Django's test client has a way of its own around a request.
    platform = serve(settled_home, WEB_WORKERS="1", WEB_THREADS="2", LIMIT_SIGNIN_PER_MINUTE="1000")
    holder = Holder(settled_home)

    def signed_in() -> list[str]:
        found = []
        for _ in range(6):
            # A name and an address of its own: both are counted, and other tests sign in at these servers too.
            body = LOGIN.replace(b"no-user", uuid4().hex.encode())
            source = ("127.0.0.9", 0)
            with socket.create_connection(("127.0.0.1", platform.port), timeout=20, source_address=source) as connected:
                connected.sendall(request(f"Content-Length: {len(body)}") + body)
                found.append(answer(connected).split()[1])
        return found

    assert set(signed_in()) == {"401"}
    with psycopg.connect(holder.database_url, autocommit=True) as raw:
        ended = raw.execute(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchone()
    assert ended is not None
    assert ended[0] > 0
    assert set(signed_in()) == {"401"}
    holder.leave()


@pytest.mark.quiet_machine
def test_ended_worker_is_restarted_with_growing_delay(platform: Platform) -> None:
    def seconds_until_it_is_back(command: str, number: int) -> float:
        before = platform.named().items()
        began = time.monotonic()
        for pid in [pid for pid, name in before if name == command]:
            os.kill(pid, number)
        assert within(60, lambda: command in dict(platform.named().items() - before).values())
        return time.monotonic() - began

    assert within(60, lambda: set(WORKER_COMMANDS) <= set(platform.named().values()))
    firsts = [
        seconds_until_it_is_back("tenant_worker", signal.SIGTERM),
        seconds_until_it_is_back("deliver_events", signal.SIGKILL),
    ]
    assert FIRST_PAUSE * 0.9 < min(firsts) < 5
    assert seconds_until_it_is_back("deliver_events", signal.SIGKILL) > 2 * FIRST_PAUSE * 0.9
    assert platform.end() == 0


def test_two_homes_and_two_ports_run_side_by_side(settled_home: Path, serve: Serve) -> None:
    with prepared_home() as other_home:
        first, second = serve(settled_home), serve(other_home)
        assert second.end() == 0
        assert within(60, first.is_ready)
        assert first.end() == 0


def test_orphaned_servers_of_a_killed_platform_are_used_again(settled_home: Path, serve: Serve) -> None:
    platform = serve(settled_home)
    os.killpg(platform.process.pid, signal.SIGKILL)
    platform.process.wait()
    assert running(settled_home) == ["postgres", "valkey-server"]
    assert serve(settled_home).end() == 0
    assert running(settled_home) == []

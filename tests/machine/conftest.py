"""The platform as a newcomer's machine sees it: processes, signals and ports, on homes of their own."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import IO, TYPE_CHECKING

import psutil
import pytest

from identity_platform.serving.embedded.temporary import TEMPORARY_PREFIX

if TYPE_CHECKING:
    from drill.nginx import Nginx

ROOT = Path(__file__).resolve().parents[2]
# What `prepare` printed, in a prepared home.
PRINTED = "printed-by-prepare"
HOLDER = """
import sys
from identity_platform.serving import embedded
servers = embedded.attach(var=sys.argv[1])
print(servers.database_url, servers.redis_url, flush=True)
sys.stdin.read()
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    """Give the variables of a machine that knows nothing of the platform, nor of the servers this suite runs on."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    # The sample application is a process more, which few tests need.
    return kept | {"PYTHONPATH": str(ROOT), "IDENTITY_VAR": str(home), "DEMO_PORT": "0"} | more


# Below those that the kernel gives to outgoing connections, which would take one between its choice and its use.
PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a free port, which only another test could take meanwhile."""
    while True:
        port = secrets.choice(PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def running(home: Path) -> list[str]:
    """Name the embedded servers that run for this home."""
    found = {}
    for process in psutil.process_iter(["name", "cmdline", "ppid"]):
        words = process.info["cmdline"] or []
        about = any(str(home / part) in word for part in ("postgres", "valkey") for word in words)
        if process.info["name"] in {"postgres", "valkey-server"} and about:
            found[process.pid] = process.info
    # A child that PostgreSQL has just forked is called like its parent for a moment.
    return sorted(info["name"] for info in found.values() if info["ppid"] not in found)


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    """Wait until something holds, no longer than this."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def kill_servers(home: Path) -> None:
    """kill -9 of both embedded servers of a home."""
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] in {"postgres", "valkey-server"}:
            words = process.info["cmdline"] or []
            if any(str(home / part) in word for part in ("postgres", "valkey") for word in words):
                # It may be ending by itself.
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


class Holder:
    """A process that uses the embedded servers of a home until it is told to leave."""

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", HOLDER, str(home)],
            env=environment(home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.database_url, self.redis_url = self.process.stdout.readline().split()

    def leave(self) -> None:
        self.process.communicate(timeout=60)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Platform:
    """The server of bin/serve, in a session of its own as under a terminal or a service manager."""

    def __init__(self, home: Path, port: int, log: IO[str], **more: str) -> None:
        self.port = port
        self.log = Path(log.name)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "identity_platform.serving.server"],
            env=environment(home, PORT=str(port), **more),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def is_up(self) -> bool:
        try:
            return self.get("/uflow/live").status == 200
        except OSError:
            return False

    def is_ready(self) -> bool:
        return self.get("/uflow/ready").status == 200

    def get(self, path: str) -> HTTPResponse:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path)
        return connection.getresponse()

    def workers(self) -> list[psutil.Process]:
        return [child for child in psutil.Process(self.process.pid).children() if child.is_running()]

    def named(self) -> dict[int, str]:
        """The names of those that live, by their ids; a companion has its command's."""
        found = {}
        for worker in self.workers():
            with contextlib.suppress(psutil.NoSuchProcess):
                if worker.status() != psutil.STATUS_ZOMBIE:
                    found[worker.pid] = worker.name()
        return found

    def end(self, number: int = signal.SIGTERM) -> int:
        os.killpg(self.process.pid, number) if number == signal.SIGINT else self.process.send_signal(number)
        return self.process.wait(timeout=60)


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty home; processes that still run for it at the end are killed."""
    place = Path(tempfile.mkdtemp(prefix="identity-home-"))
    yield place
    kill_servers(place)
    shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def prepared_home() -> Iterator[Path]:
    """A home whose databases are made and migrated: a copy, because the first of a run takes seconds of two cores."""
    place = Path(tempfile.mkdtemp(prefix="identity-home-"))
    subprocess.run(["cp", "-a", f"{_original_home()}/.", str(place)], check=True)
    yield place
    kill_servers(place)
    shutil.rmtree(place, ignore_errors=True)


@cache
def _original_home() -> Path:
    """The home that all test processes of a run copy; the first that needs it prepares it."""
    run = _folder_of_run()
    original, draft = run / "prepared", run / "prepared.new"
    with (run / "prepared.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not original.exists():
            shutil.rmtree(draft, ignore_errors=True)
            command = [sys.executable, str(ROOT / "manage.py"), "prepare"]
            done = subprocess.run(command, env=environment(draft), check=True, stdout=subprocess.PIPE)
            (draft / PRINTED).write_bytes(done.stdout)
            draft.rename(original)
    return original


def _folder_of_run() -> Path:
    var = Path(os.environ.get("IDENTITY_VAR", ""))
    if var.name.startswith(TEMPORARY_PREFIX):
        return var
    own = Path(tempfile.mkdtemp(prefix="identity-home-"))
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own


@pytest.fixture(scope="module")
def settled_home() -> Iterator[Path]:
    """A home whose databases are made and migrated, so that a start is a second start."""
    with prepared_home() as place:
        yield place


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Platform]]:
    """`serve(home, port=..., **variables)` starts a platform and waits until it answers."""
    started: list[Platform] = []

    def start(home: Path, *, port: int | None = None, **more: str) -> Platform:
        log = tmp_path / f"platform-{len(started)}.log"
        with log.open("w") as lines:
            platform = Platform(home, port or free_port(), lines, **more)
        started.append(platform)
        assert within(120, lambda: platform.is_up() or platform.process.poll() is not None), log.read_text()
        assert platform.process.poll() is None, log.read_text()
        return platform

    yield start
    for platform in started:
        if platform.process.poll() is None:
            platform.process.kill()
            platform.process.wait()


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[Callable[..., Nginx]]:
    """`nginx(port, ...)` puts the deployed configuration in front of the instances at these ports."""
    from drill.nginx import Nginx

    started: list[Nginx] = []

    def start(*upstreams: int) -> Nginx:
        started.append(Nginx(tmp_path, *upstreams))
        return started[-1]

    yield start
    for proxy in started:
        proxy.end()

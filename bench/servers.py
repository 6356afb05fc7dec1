"""Start and stop servers under load, and measure the CPU that they and PostgreSQL use."""

from __future__ import annotations

import http.client
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from django.conf import settings as django_settings

from bench.home import ROOT, Home

OWN_PYTHON = (sys.executable, "-P")
START_SECONDS = 60.0
# An outgoing connection could take another port while a program that is restarted does not use it.
PORTS = range(20_000, 32_000)


class NotStarted(Exception):
    """A server did not respond in time."""


@dataclass
class Server:
    """A running server on `port`. `seconds_to_start` is the time until its first response."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    seconds_to_start: float = 0.0
    # A process that works for it, as Valkey does for the platform, whose time counts too.
    helper: int | None = None

    def cpu_seconds(self) -> float:
        """Return user and system time of the process tree so far, the helper's included."""
        helper = 0.0 if self.helper is None else tree_cpu_seconds(self.helper)
        return tree_cpu_seconds(self.process.pid) + helper

    def worker_memory(self) -> float:
        """Return the bytes that only one worker uses (USS), as the mean of all."""
        workers = psutil.Process(self.process.pid).children(recursive=True)
        return sum(worker.memory_full_info().uss for worker in workers) / len(workers)


def tree_cpu_seconds(pid: int) -> float:
    """Return user and system time of a process and its children, ended ones included."""
    total = 0.0
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        try:
            spent = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += spent.user + spent.system + spent.children_user + spent.children_system
    return total


def postgres_cpu_seconds(home: Home) -> float:
    """Return the CPU time of the run's PostgreSQL, ended backends included."""
    pid = (home.folder / "postgres" / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0]
    return tree_cpu_seconds(int(pid))


def free_port() -> int:
    """Return a free port of 127.0.0.1 below those that the kernel gives to outgoing connections."""
    while True:
        port = secrets.choice(PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@contextmanager
def platform(home: Home, name: str = "platform", **settings: str) -> Iterator[Server]:
    """Start the platform as bin/serve does; `settings` are environment variables. Raises NotStarted."""
    command = [*OWN_PYTHON, "-m", "identity_platform.serving.server"]
    with running(home, name, command, settings, path="/uflow/live") as server:
        yield server


@contextmanager
def command(home: Home, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a management command such as `tenant_worker` beside the server until the block ends."""
    # Metrics of its own: the server's are those of requests.
    folder = home.folder / f"metrics-{words[0]}"
    folder.mkdir(exist_ok=True)
    environment = {**home.environment, "PROMETHEUS_MULTIPROC_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    started = [*OWN_PYTHON, str(ROOT / "manage.py"), *words]
    with (home.folder / f"{words[0]}.log").open("ab") as output:
        process = subprocess.Popen(started, env=environment, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def peer(home: Home, module: str, **settings: str) -> Iterator[Server]:
    """Start a peer of bench/peers on the same server program with the same flags. Raises NotStarted."""
    settings = {"WEB_THREADS": str(django_settings.WEB_THREADS), **settings}
    command = [*OWN_PYTHON, "-m", "bench.peers.serve", f"bench.peers.{module}"]
    with running(home, module, command, settings, path="/") as server:
        yield server


@contextmanager
def running(
    home: Home,
    name: str,
    command: Sequence[str | Path],
    settings: Mapping[str, str],
    *,
    path: str,
    seconds: float = START_SECONDS,
) -> Iterator[Server]:
    """Start a program that serves on 127.0.0.1 at the port of its variable PORT, which `{port}` in the command stands for.

    Raises NotStarted if it does not respond at `path` within `seconds`.
    """
    port = free_port()
    started = [str(word).replace("{port}", str(port)) for word in command]
    log = home.folder / f"{name}-{port}.log"
    environment = {**home.environment, **settings, "HOST": "127.0.0.1", "PORT": str(port), "PYTHONPATH": str(ROOT)}
    began = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(started, env=environment, stdout=output, stderr=output)
    server = Server(name, port, process)
    try:
        _wait(server, path, log, seconds)
        server.seconds_to_start = time.perf_counter() - began
        yield server
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait(server: Server, path: str, log: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and server.process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        try:
            connection.request("GET", path)
            connection.getresponse().read()
            return
        except OSError:
            time.sleep(0.01)
        finally:
            connection.close()
    raise NotStarted(f"{server.name} does not respond:\n{log.read_text(encoding='utf-8', errors='replace')[-2000:]}")

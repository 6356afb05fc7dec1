"""Instances of the platform behind deploy/nginx.conf, which can be stopped, killed, replaced and upgraded one by one."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from bench.home import ROOT, Home
from bench.servers import free_port
from drill.cluster import NotThere, wait_until
from drill.nginx import Nginx

START_SECONDS = 60.0
STOP_SECONDS = 30.0
BEHIND_NGINX = {"TRUSTED_PROXY_HOPS": "1", "WEB_WORKERS": "1", "WEB_THREADS": "8"}


class Program:
    """A program of the platform with its worker processes. `settings` are environment variables."""

    def __init__(self, home: Home, name: str, arguments: list[str], **settings: str) -> None:
        self.home, self.name, self.arguments, self.settings = home, name, arguments, settings
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.home.folder / f"{self.name}.log"

    def start(self) -> None:
        environment = {**self.home.environment, **self.settings, "PYTHONPATH": str(ROOT)}
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-P", *self.arguments],
                env=environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def stop(self) -> None:
        """End it with SIGTERM, as a service manager does. Raises NotThere if it does not end."""
        assert self.process is not None
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NotThere(f"{self.name} did not end within {STOP_SECONDS:g} s.") from None

    def kill(self) -> None:
        """Kill all of its processes at once; those that have ended already are no error."""
        if self.process is None:
            return
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.process.pid)
            found = [first, *first.children(recursive=True)]
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
        self.process.wait()


class Instance(Program):
    """A server of the platform on one port."""

    def __init__(self, home: Home, **settings: str) -> None:
        self.port = free_port()
        address = {"HOST": "127.0.0.1", "PORT": str(self.port)}
        name = f"instance-{self.port}"
        super().__init__(home, name, ["-m", "identity_platform.serving.server"], **settings, **address)

    def start(self) -> None:
        """Start it and wait until it is ready. Raises NotThere."""
        super().start()
        wait_until(START_SECONDS, self._is_ready, f"{self.name} is not ready")

    def is_whole(self) -> bool:
        """Whether it says that it is ready and that Valkey answers."""
        return self._said_of_itself() == "ready"

    def _is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise NotThere(f"{self.name} ended:\n{self.log.read_text(errors='replace')[-2000:]}")
        return bool(self._said_of_itself())

    def _said_of_itself(self) -> str:
        """Return its status, such as ready or degraded; nothing if it cannot serve requests."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/uflow/ready")
            response = connection.getresponse()
            said = response.read()
            return str(json.loads(said)["status"]) if response.status == 200 else ""
        except OSError:
            return ""
        finally:
            connection.close()


class Front:
    """Instances, and nginx in front of them."""

    def __init__(self, instances: list[Instance], nginx: Nginx) -> None:
        self.instances, self.nginx = instances, nginx

    @property
    def port(self) -> int:
        return self.nginx.port

    def replace(self, **settings: str) -> None:
        """Restart the instances one after the other, as the page on upgrades says; settings replace those of before."""
        for instance in self.instances:
            self.restart(instance, **settings)

    def restart(self, instance: Instance, **settings: str) -> None:
        """Restart one of them while nginx sends it nothing."""
        self.nginx.reload(down=instance.port)
        instance.stop()
        instance.settings |= settings
        instance.start()
        self.nginx.reload()


@contextmanager
def front(home: Home, number: int, **settings: str) -> Iterator[Front]:
    """Start instances behind nginx; end all of them after the block. Raises NotThere."""
    instances = [Instance(home, **BEHIND_NGINX, **settings) for _ in range(number)]
    nginx = None
    try:
        for instance in instances:
            instance.start()
        folder = home.folder / "nginx"
        folder.mkdir(exist_ok=True)
        nginx = Nginx(folder, *[instance.port for instance in instances])
        yield Front(instances, nginx)
    finally:
        if nginx is not None:
            nginx.end()
        for instance in instances:
            instance.kill()

"""Real server processes on the databases of this test process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.datastructures import CaseInsensitiveMapping
from psycopg.conninfo import make_conninfo

from tests.machine.conftest import free_port

ROOT = Path(__file__).resolve().parents[2]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of another process on the databases of this test."""
    parts = settings.DATABASES["default"]
    known = {"dbname": parts["NAME"], "user": parts["USER"], "password": parts["PASSWORD"], "host": parts["HOST"]}
    if parts["PORT"]:
        known["port"] = parts["PORT"]
    return {
        **{
            name: os.environ[name]
            for name in ("PATH", "HOME", "TMPDIR", "LANG", "DATABASE_ADMIN_URL")
            if name in os.environ
        },
        "PYTHONPATH": str(ROOT),
        "DJANGO_SETTINGS_MODULE": "identity_platform.settings",
        "DATABASE_URL": make_conninfo(**{name: value for name, value in known.items() if value}),
        "PGBOUNCER": str(settings.PGBOUNCER),
        "REDIS_URL": str(settings.REDIS_URL),
        "SECRET_KEY": str(settings.SECRET_KEY),
        "ENCRYPTION_KEYS": str(settings.ENCRYPTION_KEYS),
        "TENANT_DATABASE_PREFIX": settings.TENANT_DATABASE_PREFIX,
        "CACHE_KEY_PREFIX": settings.CACHES["ratelimit"]["KEY_PREFIX"],
        "TOKEN_ISSUER": settings.TOKEN_ISSUER,
        "ALLOWED_HOSTS": "127.0.0.1",
        "SECURE_SSL_REDIRECT": "false",
        "OPERATORS_REQUIRE_FACTOR": "false",
        "EMAIL_URL": "smtp://127.0.0.1:9",  # the discard port: nothing here sends mail
        "TENANT_WARM_POOL": "0",
        "TENANT_CONNECTION_BUDGET": "5",
        "WEB_THREADS": "2",
        **more,
    }


class Answer:
    """A response of a server."""

    def __init__(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.status_code, self.headers, self.content = status, CaseInsensitiveMapping(headers), content

    def json(self) -> Any:
        return json.loads(self.content)


class Server:
    """bin/serve with this number of worker processes."""

    def __init__(self, log: Path, workers: int, **more: str) -> None:
        self.port = free_port()
        self.log = log
        with log.open("w") as lines:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "identity_platform.serving.server"],
                env=environment(
                    PORT=str(self.port),
                    WEB_WORKERS=str(workers),
                    **{"DJANGO_SETTINGS_MODULE": "tests.registry.patient_settings", **more},
                ),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=lines,
                stderr=subprocess.STDOUT,
            )

    def wait(self, seconds: float = 150) -> None:
        """Wait until the server responds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()
            try:
                if self.call("GET", "/uflow/live").status_code == 200:
                    return
            except OSError:
                time.sleep(0.05)
        raise TimeoutError(self.log.read_text())

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: dict[str, str] | None = None,
        connection: HTTPConnection | None = None,
    ) -> Answer:
        """Send one request, over a new connection unless one is given."""
        line = connection or HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = dict(headers or {})
        if token:
            sent["Authorization"] = f"Bearer {token}"
        content = None if body is None else json.dumps(body)
        if content is not None:
            sent["Content-Type"] = "application/json"
        line.request(method, path, content, sent)
        response = line.getresponse()
        found = Answer(response.status, dict(response.getheaders()), response.read())
        if connection is None:
            line.close()
        return found

    def line(self) -> HTTPConnection:
        """Open a connection."""
        return HTTPConnection("127.0.0.1", self.port, timeout=30)

    def end(self) -> None:
        """Stop the server and wait for its end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=60)

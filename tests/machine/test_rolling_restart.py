"""Two instances behind deploy/nginx.conf are restarted and upgraded one after the other, and no request fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from drill.nginx import Nginx
from tests.machine.conftest import ROOT, Platform, environment, prepared_home, within
from tests.world import PASSWORD

pytestmark = [pytest.mark.needs("nginx"), pytest.mark.timeout(600)]

# One address for both: it is the issuer of their tokens.
BEHIND_NGINX = {
    "BASE_URL": "http://localhost",
    "TRUSTED_PROXY_HOPS": "1",
    "WEB_WORKERS": "1",
    "WEB_THREADS": "8",
}
NEWER = {"DJANGO_SETTINGS_MODULE": "tests.tenants.newer_release.settings"}
CLIENTS = 6


def get(port: int, path: str, token: str) -> int:
    """The status of a response over a new connection."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    return connection.getresponse().status


@contextmanager
def load(port: int, *calls: tuple[str, str, dict[str, str], bytes | None]) -> Iterator[Counter[int | str]]:
    """Clients that make these calls in turn, each over a connection of its own, and what they have got."""
    heard, ended, guard = Counter[int | str](), threading.Event(), threading.Lock()

    def work() -> None:
        while not ended.is_set():
            for method, path, headers, body in calls:
                connection = HTTPConnection("127.0.0.1", port, timeout=60)
                try:
                    connection.request(method, path, body, headers)
                    outcome: int | str = connection.getresponse().status
                except (OSError, HTTPException) as lost:
                    outcome = type(lost).__name__
                connection.close()
                with guard:
                    heard[outcome] += 1
                # A hundred requests a second; more would take the CPU from the instances that start.
                ended.wait(0.05)

    clients = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        assert within(60, lambda: heard.total() > 100)
        yield heard
        before = heard.total()
        assert within(60, lambda: heard.total() > before + 100)
    finally:
        ended.set()
        for client in clients:
            client.join()


def manage(home: Path, *words: str, **more: str) -> str:
    """What a command prints; its exit code is 0."""
    command = [sys.executable, str(ROOT / "manage.py"), *words]
    done = subprocess.run(command, env=environment(home, **more), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def settled_home() -> Iterator[Path]:
    """A home of each test: the connections that killed platforms have leased are missing for half a minute."""
    with prepared_home() as place:
        yield place


@pytest.fixture
def acme(settled_home: Path) -> dict[str, Any]:
    """A tenant on the servers of the home."""
    name = f"acme-{os.urandom(4).hex()}"
    admin = ["--admin-username", name, "--admin-email", f"{name}@example.com"]
    made = manage(settled_home, "create_tenant", name, *admin, "--json", TENANT_ADMIN_PASSWORD=PASSWORD)
    return dict(json.loads(made))


def signed_in(port: int, tenant: dict[str, Any]) -> str:
    """An access token of the tenant's admin."""
    body = json.dumps({"username": tenant["admin"]["username"], "password": PASSWORD})
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/uflow/admin/auth/login", body, {"Content-Type": "application/json"})
    return str(json.loads(connection.getresponse().read())["access_token"])


@pytest.mark.quiet_machine
def test_restart_one_after_the_other_fails_no_request(
    settled_home: Path,
    serve: Callable[..., Platform],
    nginx: Callable[..., Nginx],
    acme: dict[str, Any],
) -> None:
    instances = [serve(settled_home, **BEHIND_NGINX) for _ in range(2)]
    proxy = nginx(*[instance.port for instance in instances])
    token = signed_in(proxy.port, acme)
    reading = {"Authorization": f"Bearer {token}"}
    with load(proxy.port, ("GET", "/uflow/live", {}, None), ("GET", "/authmgr/validate", reading, None)) as heard:
        for instance in instances:
            assert instance.end() == 0
            again = serve(settled_home, port=instance.port, **BEHIND_NGINX)
            assert within(60, again.is_ready)
    assert set(heard) == {200}, heard


def upgrade_commands() -> list[list[str]]:
    """The commands of the section on upgrades, in their order."""
    page = (ROOT / "docs" / "running-in-production.md").read_text()
    section = page.split("## Upgrading\n")[1].split("\n## ")[0]
    return [found.split() for found in re.findall(r"^ *bin/manage ([a-z_ \d-]+)$", section, flags=re.MULTILINE)]


@pytest.mark.quiet_machine
def test_upgrade_page_with_a_migration_fails_no_request(
    settled_home: Path,
    serve: Callable[..., Platform],
    nginx: Callable[..., Nginx],
    acme: dict[str, Any],
) -> None:
    prepare, trial, migrate, check, compare, index = upgrade_commands()
    instances = [serve(settled_home, **BEHIND_NGINX) for _ in range(2)]
    proxy = nginx(*[instance.port for instance in instances])
    token = signed_in(proxy.port, acme)
    reading = {"Authorization": f"Bearer {token}"}
    listed = f"/uflow/user/enduser/list?tenant_id={acme['tenant_id']}"
    form = reading | {"Content-Type": "application/json"}
    asked = b'{"permissions": ["endusers:read"]}'
    with load(
        proxy.port, ("GET", listed, reading, None), ("POST", "/authmgr/validate/permissions", form, asked)
    ) as heard:
        for command in (prepare, trial, migrate):
            manage(settled_home, *command, **NEWER)
        for instance in instances:
            proxy.reload(down=instance.port)
            assert instance.end() == 0
            newer = serve(settled_home, port=instance.port, **BEHIND_NGINX, **NEWER)
            assert within(60, newer.is_ready)
            proxy.reload()
        # Without a terminal the command cannot ask.
        manage(settled_home, *check, "--yes", **NEWER)
        manage(settled_home, *compare, "--yes", **NEWER)
        manage(settled_home, *index, **NEWER)
    assert set(heard) == {200}, heard
    assert get(proxy.port, "/uflow/ready", token) == 200

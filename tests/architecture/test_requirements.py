"""The locked requirements: complete, with hashes, installed as locked, and what the production code imports."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
# Those of production are locked at the top.
PRODUCTION = "requirements/production"
DIRECT = sorted(f"requirements/{path.stem}" for path in (ROOT / "requirements").glob("*.in"))
OF_DEVELOPMENT = ["requirements/embedded", "requirements/tracing", "requirements/s3", "requirements/dev"]
INSTALLED = ["requirements/uv", PRODUCTION, *OF_DEVELOPMENT]
LOCKED = re.compile(r"^(?P<pin>[a-z0-9-]+==[^\\]+?) \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", re.MULTILINE)
# Imported only where they are installed: the embedded servers, traces, buckets, LDAP with its requirement pyasn1.
OPTIONAL = ["requirements/embedded", "requirements/ldap", "requirements/s3", "requirements/tracing"]
# Static files of Swagger UI, a Django app without code.
NOT_IMPORTED = {"drf-spectacular-sidecar"}


def direct(name: str) -> set[str]:
    """Return the packages that an .in file names."""
    lines = [line.split("#")[0].strip() for line in (ROOT / f"{name}.in").read_text().splitlines()]
    return {canonicalize_name(Requirement(line).name) for line in lines if line}


def lock_of(name: str) -> Path:
    return ROOT / ("requirements.txt" if name == PRODUCTION else f"{name}.txt")


def locked(name: str) -> list[Requirement]:
    """Return the pins of a lock file."""
    return [Requirement(found["pin"]) for found in LOCKED.finditer(lock_of(name).read_text())]


def imports() -> Iterator[str]:
    """Yield the top-level modules that the production code imports when it runs."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text())
            typing = {
                inner
                for node in ast.walk(tree)
                if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
                for inner in ast.walk(node)
            }
            for node in set(ast.walk(tree)) - typing:
                if isinstance(node, ast.Import):
                    yield from (alias.name.split(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                    yield node.module.split(".")[0]


def test_every_direct_requirement_is_locked() -> None:
    missing = {name: direct(name) - {canonicalize_name(pin.name) for pin in locked(name)} for name in DIRECT}
    assert missing == {name: set() for name in DIRECT}


@pytest.mark.parametrize("name", DIRECT)
def test_locks_hold_only_pins_with_hashes(name: str) -> None:
    text = lock_of(name).read_text()
    rest = LOCKED.sub("", text)
    assert [line for line in rest.splitlines() if not line.strip().startswith("#")] == []
    assert "://" not in text


@pytest.mark.parametrize("name", INSTALLED)
def test_installed_packages_are_the_locked_ones(name: str) -> None:
    pins = [pin for pin in locked(name) if pin.marker is None or pin.marker.evaluate()]
    odd = {
        pin.name: importlib.metadata.version(pin.name)
        for pin in pins
        if not pin.specifier.contains(importlib.metadata.version(pin.name), prereleases=True)
    }
    assert pins
    assert odd == {}


@pytest.mark.parametrize(
    ("name", "package"),
    [
        pytest.param("requirements/ldap", "python-ldap", marks=pytest.mark.needs("python-ldap")),
        pytest.param("requirements/ci", "patroni", marks=pytest.mark.needs("patroni")),
    ],
)
def test_optional_package_is_the_locked_one(name: str, package: str) -> None:
    (pin,) = [pin for pin in locked(name) if pin.name == package]
    assert str(pin.specifier) == f"=={importlib.metadata.version(package)}"


def test_production_requires_exactly_what_it_imports() -> None:
    distributions = importlib.metadata.packages_distributions()
    outside = set(imports()) - set(PACKAGES) - sys.stdlib_module_names
    needed = {canonicalize_name(distributions[module][0]) for module in outside if module in distributions}
    optional = set.union({"pyasn1"}, *(direct(name) for name in OPTIONAL))
    assert needed - optional == direct(PRODUCTION) - NOT_IMPORTED
    # Not installed everywhere.
    assert outside - set(distributions) <= {"ldap"}


def test_architecture_page_names_every_library() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    table = page.partition("## Libraries\n")[2].partition("\n#")[0]
    cells = re.findall(r"^\| [^|]+ \| ([^|]+) \|$", table, re.MULTILINE)[1:]
    named = {canonicalize_name(name.split()[0]) for cell in cells for name in cell.split(", ")}
    assert named == direct(PRODUCTION) | direct("requirements/uv")

"""docs/libraries.md lists what the tests run."""

import json
import re

import pytest

from tests.openid.libraries.libraries import LIBRARIES, NODE_LOCK, PYTHON_LOCK, ROOT, Library

PAGE = (ROOT / "docs" / "libraries.md").read_text()
# Installed for the applications around the libraries; `jwks-rsa` gives express-jwt its keys.
HELPERS = {"express", "express-session", "fastify", "passport", "jwks-rsa", "flask"}


def test_table_lists_what_is_tested() -> None:
    rows = re.findall(r"^\| [^-\n].*$", PAGE.partition("## Not in the tests")[0], re.MULTILINE)
    assert rows[1:] == sorted((library.row for library in LIBRARIES), key=str.lower)


def test_installed_libraries_are_listed() -> None:
    installed = set(json.loads((ROOT / NODE_LOCK).read_text())["packages"][""]["dependencies"])
    lines = (ROOT / PYTHON_LOCK).with_suffix(".in").read_text().splitlines()
    installed |= {line.partition("[")[0].lower() for line in lines if not line.startswith("#")}
    assert installed - {library.name for library in LIBRARIES} == HELPERS


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: f"{library.name} {library.source}")
def test_row_states_lines_and_test_that_exist(library: Library) -> None:
    path, _, function = library.test.partition("::")
    assert f"def {function}(" in (ROOT / path).read_text()
    source = (ROOT / library.source).read_text()
    assert [line for line in library.lines if line not in source] == []


def test_page_states_the_number_of_libraries() -> None:
    names = {library.name.removesuffix("-5") for library in LIBRARIES}
    assert f"{len(names)} libraries and programs" in PAGE

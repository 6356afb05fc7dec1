"""The documentation matches the repository: links, named files and the import graph."""

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
LINK = re.compile(r"\]\((?!https?:|/|<)([^)#\s]*)(?:#([^)\s]+))?\)")
NAMED_FILE = re.compile(
    r"`((?:\.ci|bench|bin|console|deploy|docs|drill|federation|identity_platform|mfa|openid|registry|requirements|templates|tenants|tests|userflow)/[\w./-]*)`"
)


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links() -> Iterator[tuple[str, Path, str]]:
    for page in PAGES:
        for target, anchor in LINK.findall(page.read_text()):
            yield page.name, (page.parent / target if target else page).resolve(), anchor


def test_links_between_pages_lead_somewhere() -> None:
    dead = [
        f"{name}: {target.name}#{anchor}"
        for name, target, anchor in links()
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]
    assert dead == []


def test_pages_name_files_that_exist() -> None:
    missing = {
        f"{page.name}: {name}"
        for page in PAGES
        for name in NAMED_FILE.findall(page.read_text())
        # bin/docs writes the site.
        if not (ROOT / name).exists() and name != "docs/_site"
    }
    assert missing == set()


def test_import_graph_is_up_to_date() -> None:
    run = subprocess.run([sys.executable, str(ROOT / "bin/_graph.py"), "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_conformance_page_names_tests_that_exist() -> None:
    # A row names tests, and after them the file that they are in.
    page = (ROOT / "docs/conformance.md").read_text()
    named = re.findall(r"((?:`test_\w+`(?:, )?)+)(?: in | \()(test_\w+\.py)", page)
    defined: defaultdict[str, str] = defaultdict(str)
    for path in (ROOT / "tests/openid").rglob("test_*.py"):
        # Two folders may have a file of the same name.
        defined[path.name] += path.read_text()
    missing = [
        f"{file}: {test}"
        for tests, file in named
        for test in re.findall(r"`(test_\w+)`", tests)
        if f"def {test}(" not in defined[file]
    ]
    assert missing == []
    assert sum(tests.count("`test_") for tests, _ in named) == page.count("`test_")
    # Every module has a test, or a reason why it is not applicable.
    ours = page[page.index("## Tests of ours") :]
    rows = re.findall(r"^\| `oidcc-[\w-]+` \|(.*)$", ours, re.MULTILINE)
    assert len(rows) >= 50
    assert [row for row in rows if "`test_" not in row and "not applicable:" not in row] == []

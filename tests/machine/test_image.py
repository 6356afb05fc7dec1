"""deploy/Containerfile without an engine: what it copies is sent to the builder, and is enough to build the documentation."""

import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from tests.machine.conftest import ROOT

CONTAINERFILE = ROOT / "deploy" / "Containerfile"
IGNORED = (ROOT / "deploy" / "Containerfile.dockerignore").read_text().split()
# The first half of docs.builder, which reads every file that the pages link to. Sphinx itself is run by bin/docs.
LAY_OUT = """
import sys
from pathlib import Path
sys.path.insert(0, ".")
from docs.builder.__main__ import openapi_document
from docs.builder.pages import SourceFolder
Path("source").mkdir()
SourceFolder(Path("source").resolve()).write(openapi_document("state"))
"""


def is_sent(path: PurePosixPath) -> bool:
    """Return whether a path of the repository is sent to the builder.

    The last pattern that matches it, or a folder above it, decides.
    """
    sent = True
    for line in IGNORED:
        pattern = line.removeprefix("!")
        at_any_depth = pattern.startswith("**/")
        for candidate in [path, *path.parents][:-1]:
            whole = candidate if at_any_depth else PurePosixPath("/", candidate)
            if whole.match(pattern.removeprefix("**/") if at_any_depth else f"/{pattern}"):
                sent = line.startswith("!")
    return sent


def copies() -> list[tuple[list[str], str]]:
    """Return the sources and the target of each COPY from the repository."""
    lines = CONTAINERFILE.read_text().replace("\\\n", " ").splitlines()
    words = [line.split()[1:] for line in lines if line.startswith("COPY ") and "--from=" not in line]
    return [(each[:-1], each[-1]) for each in words]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The folder that the stage `docs` has copied."""

    def ignored(folder: str, names: list[str]) -> list[str]:
        inside = PurePosixPath(Path(folder).relative_to(ROOT))
        return [name for name in names if not is_sent(inside / name)]

    for sources, target in copies():
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tmp_path / target, ignore=ignored)
            else:
                shutil.copy(ROOT / source, tmp_path / target)
    return tmp_path


def test_every_copied_file_is_sent_to_the_builder() -> None:
    sources = {source.rstrip("/") for names, _ in copies() for source in names}
    assert {"requirements.txt", "manage.py", "templates", "docs"} <= sources
    assert [source for source in sorted(sources) if not (ROOT / source).exists()] == []
    assert [source for source in sorted(sources) if not is_sent(PurePosixPath(source))] == []
    unneeded = (
        "tests/conftest.py",
        ".git/config",
        ".venv/bin/python",
        "var/keys",
        "docs/_site/index.html",
        "bench/run.py",
    )
    assert [path for path in unneeded if is_sent(PurePosixPath(path))] == []


def test_stage_of_the_documentation_has_every_page_that_is_linked_to(image: Path) -> None:
    done = subprocess.run([sys.executable, "-P", "-c", LAY_OUT], cwd=image, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (image / "source" / "llms.txt").exists()

"""The root of the repository has few entries, so that a newcomer sees what matters."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_ENTRIES = 25


def test_root_has_few_entries() -> None:
    # As `ls` shows them: without hidden ones, and without what .gitignore names.
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    entries = {path.split("/")[0] for path in listed if not path.startswith(".") and (ROOT / path).exists()}
    assert "manage.py" in entries
    assert len(entries) <= MOST_ENTRIES, sorted(entries)

"""bin/drill with one drill under load: a real cluster whose primary crashes. Restores have tests of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DRILLED = ("primary_crashes",)
ROOT = Path(__file__).resolve().parents[2]
PROJECT = {"PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "identity_platform.settings"}


@pytest.mark.quiet_machine
@pytest.mark.needs("patroni")
@pytest.mark.needs("etcd")
@pytest.mark.timeout(400)
def test_no_acknowledged_write_is_lost_in_a_drill(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Before.\n<!-- Written by bin/drill. -->\nold\n<!-- End of what bin/drill writes. -->\nAfter.\n")
    # The environment of the command line, without the servers of this test run.
    known = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    command = [sys.executable, "-P", "-m", "drill", *DRILLED, "--runs", "1"]
    run = subprocess.run(
        [*command, "--results", str(tmp_path / "results"), "--page", str(page)],
        env=known | {**PROJECT, "IDENTITY_VAR": str(tmp_path / "var"), "DEMO_PORT": "0"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    stored = tmp_path / "results" / "drill.json"
    assert stored.exists(), run.stdout + run.stderr
    results = json.loads(stored.read_text())["results"]
    assert set(results) == set(DRILLED), run.stderr
    for result in results.values():
        assert result["mended"], run.stderr
        [outcome] = result["outcomes"]
        # How long it took is for a machine that does nothing else.
        assert outcome["lost"] == outcome["wrong"] == 0
        assert outcome["acknowledged"] > 50
    written = page.read_text()
    assert written.startswith("Before.")
    assert written.endswith("After.\n")
    assert "PostgreSQL of the primary is killed" in written
    assert "old" not in written

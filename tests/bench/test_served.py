"""`bin/bench served` with few tenants: it measures and prints."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_random_tenants_are_measured(tmp_path: Path) -> None:
    options = "--tenants 1 2 --seconds 0.5 --rounds 1 --idle 0"
    command = [sys.executable, "-P", "-m", "bench.served", *options.split()]
    environment = {**os.environ, "IDENTITY_VAR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    measured = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert measured.returncode == 0, measured.stderr
    rows = re.findall(r"(\d+) tenants? +│ +(\d+) +│ +([\d.]+)x +│ +[\d.]+ +│ +(\d+) +│ +([\d.]+) ", measured.stdout)
    assert [row[0] for row in rows] == ["1", "2"], measured.stdout
    for _, speed, ratio, backends, slowest in rows:
        assert int(speed) > 0
        assert float(ratio) > 0
        assert int(backends) > 0
        assert float(slowest) > 0

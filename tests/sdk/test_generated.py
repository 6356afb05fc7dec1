"""The generated files of the SDKs are those of this API document."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.machine.conftest import ROOT
from tests.world import Api


@pytest.mark.needs("node")
def test_generated_files_are_up_to_date(tmp_path: Path) -> None:
    document = tmp_path / "openapi.json"
    document.write_bytes(Api().get("/schema/").content)
    command = [sys.executable, "bin/_sdk.py", "--check", "--document", document]
    run = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr

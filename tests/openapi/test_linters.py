"""Redocly and Spectral accept the API document with their recommended rules: no error, no warning."""

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.openapi.document import document
from tests.openid.node_client import install_packages, node_programs

FOLDER = Path(__file__).parent / "node"
# Generators and pages load the whole document, compressed.
LARGEST_BYTES, LARGEST_COMPRESSED_BYTES = 520_000, 65_000


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """The document as it is served, and one with defects, which shows that a linter has read its rules."""
    install_packages(FOLDER)
    files = [tmp_path / "openapi.json", tmp_path / "defective.json"]
    files[0].write_bytes(orjson.dumps(document()))
    files[1].write_text(json.dumps({"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {}}))
    return files


def report(program: str, *arguments: object) -> Any:
    """Run a linter, which ends with 1 if it finds anything, and return its report."""
    node, _ = node_programs()
    command = [node, FOLDER / "node_modules" / ".bin" / program, "lint", *map(str, arguments)]
    # Redocly reports its use and asks for newer versions; a test does neither.
    environment = {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true", "NODE_NO_WARNINGS": "1"}
    done = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, check=False, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def test_redocly_accepts_the_document(files: list[Path]) -> None:
    options = ("--extends=recommended", "--format=json", "--max-problems=1000")
    found, defects = (report("redocly", file, *options)["problems"] for file in files)
    assert found == []
    assert "info-license" in {problem["ruleId"] for problem in defects}


def test_spectral_accepts_the_document(files: list[Path]) -> None:
    found = report("spectral", *files, "--ruleset=spectral.yaml", "--format=json")
    of_document = [problem for problem in found if Path(problem["source"]).name == "openapi.json"]
    assert of_document == []
    assert "oas3-api-servers" in {problem["code"] for problem in found}


def test_document_is_small() -> None:
    text = orjson.dumps(document())
    assert len(text) <= LARGEST_BYTES
    assert len(gzip.compress(text)) <= LARGEST_COMPRESSED_BYTES

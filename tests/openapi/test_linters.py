"""Redocly and Spectral accept the parts of the API document, which make up the whole, with their recommended rules."""

import gzip
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.openapi.document import PARTS, document, part
from tests.openid.node_client import install_packages, node_programs

FOLDER = Path(__file__).parent / "node"
# Generators and pages load a part, or the whole, compressed. Each field of a client is in several schemas and examples.
LARGEST_PART, LARGEST_BYTES, LARGEST_COMPRESSED_BYTES = 315_000, 526_000, 64_000


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """The parts as they are served, and a document with defects, which shows that a linter has read its rules."""
    install_packages(FOLDER)
    defective = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {}}
    documents = {**{f"{name}.json": part(name) for name in PARTS}, "defective.json": defective}
    for name, content in documents.items():
        (tmp_path / name).write_bytes(orjson.dumps(content))
    return [tmp_path / name for name in documents]


def problems(program: str, *arguments: object) -> Any:
    """Run a linter, which ends with 1 if it finds anything, and return what it writes: a list, or a report on each file."""
    node, _ = node_programs()
    command = [node, FOLDER / "node_modules" / ".bin" / program, "lint", *map(str, arguments)]
    # Redocly reports its use and asks for newer versions; a test does neither.
    environment = {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true", "NODE_NO_WARNINGS": "1"}
    done = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, check=False, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(b"[" + re.sub(rb"^\}\{", b"},{", done.stdout, flags=re.MULTILINE) + b"]")


def test_redocly_accepts_the_parts(files: list[Path]) -> None:
    options = ("--extends=recommended", "--format=json", "--max-problems=1000")
    *parts, defective = [report["problems"] for report in problems("redocly", *files, *options)]
    assert parts == [[]] * len(PARTS)
    assert "info-license" in {problem["ruleId"] for problem in defective}


def test_spectral_accepts_the_parts(files: list[Path]) -> None:
    (found,) = problems("spectral", *files, "--ruleset=spectral.yaml", "--format=json")
    assert [problem for problem in found if Path(problem["source"]) != files[-1]] == []
    assert "oas3-api-servers" in {problem["code"] for problem in found}


@pytest.mark.parametrize("name", PARTS)
def test_part_is_small(name: str) -> None:
    assert len(orjson.dumps(part(name))) < LARGEST_PART


def test_document_is_small() -> None:
    text = orjson.dumps(document())
    assert len(text) <= LARGEST_BYTES
    assert len(gzip.compress(text)) <= LARGEST_COMPRESSED_BYTES

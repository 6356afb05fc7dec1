"""deploy/helm/identity-platform as files, and as Helm renders it."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.machine.conftest import ROOT
from tests.machine.groups import program

CHART = ROOT / "deploy" / "helm" / "identity-platform"
# As deploy/kubernetes.yaml is made.
RENDER = ["template", "identity", str(CHART), "--namespace", "identity", "--kube-version", "1.30", "--no-hooks"]


def values() -> Any:
    """Return the default values."""
    return yaml.safe_load((CHART / "values.yaml").read_text())


def helm(*arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run Helm."""
    path = program("helm")
    assert path
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=check)


def manifests(text: str | Path) -> list[dict[str, Any]]:
    """Return the documents of a file or of a text."""
    read = text.read_text() if isinstance(text, Path) else text
    return [document for document in yaml.safe_load_all(read) if document]

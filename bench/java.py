"""Find a Java runtime and Maven on the machine; the benchmark installs neither."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

# Where Debian and Fedora install runtimes that are not the default.
RUNTIMES = Path("/usr/lib/jvm")


class JavaMissing(Exception):
    """The machine has no Java or no Maven."""


def java_home(least: int) -> Path:
    """Return the folder of a Java runtime of version `least` or newer. Raises JavaMissing."""
    for folder in _folders():
        if _version(folder) >= least:
            return folder
    raise JavaMissing(f"needs Java {least} or newer in JAVA_HOME, on the PATH or in {RUNTIMES}")


def maven() -> str:
    """Return the path of Maven. Raises JavaMissing."""
    path = shutil.which("mvn")
    if path is None:
        raise JavaMissing("needs Maven (mvn) on the PATH")
    return path


def _folders() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if java := shutil.which("java"):
        yield Path(java).resolve().parent.parent
    if RUNTIMES.is_dir():
        yield from sorted(RUNTIMES.iterdir(), reverse=True)


def _version(folder: Path) -> int:
    """Return the feature release of a runtime, 0 without one."""
    try:
        shown = subprocess.run([folder / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60)
    except OSError:
        return 0
    match = re.search(r'version "(\d+)', shown.stderr)
    return int(match[1]) if match else 0

"""The documentation site, built."""

import fcntl
import subprocess
from pathlib import Path

from docs.builder.__main__ import SITE
from tests.documentation.blocks import ROOT


def built_site() -> Path:
    """Return the folder of the site. .ci/run has built it; here it is built if there is none or a page is newer."""
    sources = [
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs/builder").glob("*.*"),
        *(ROOT / "docs/builder/static").glob("*"),
    ]
    start = SITE / "index.html"
    with SITE.with_name("_site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes must not build it side by side
        if not start.exists() or start.stat().st_mtime < max(path.stat().st_mtime for path in sources):
            subprocess.run([ROOT / "bin/docs"], check=True)
    return SITE

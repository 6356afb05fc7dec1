"""A temporary home for one command: `python -m identity_platform.serving.embedded.temporary COMMAND ...`; used by bin/test."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from identity_platform.serving.embedded import attach, leave, starting_or_stopping
from identity_platform.serving.embedded.postgres import Postgres
from identity_platform.serving.embedded.valkey import Valkey

TEMPORARY_PREFIX = "identity-test-"


def run_in_temporary_home(command: Sequence[str]) -> int:
    """Run a command with an IDENTITY_VAR and embedded servers of its own, remove both, and give its exit code.

    A server whose URL is in the environment is not started. The servers are those of `unsafe_fast`.
    """
    _remove_forgotten_homes()
    home = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX))
    try:
        attach(var=home, postgres=not _given("DATABASE_URL"), valkey=not _given("REDIS_URL"), unsafe_fast=True)
        child = subprocess.Popen(command, env=os.environ | {"IDENTITY_VAR": str(home)})

        def pass_on(number: int, frame: FrameType | None) -> None:
            # The terminal sends Ctrl-C to the child as well.
            if number != signal.SIGINT:
                child.send_signal(number)

        signal.signal(signal.SIGINT, pass_on)
        signal.signal(signal.SIGTERM, pass_on)
        return child.wait()
    finally:
        leave(home)
        shutil.rmtree(home, ignore_errors=True)


def _given(name: str) -> bool:
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


def _remove_forgotten_homes() -> None:
    """Remove the homes whose owner was killed: those with a lock that nobody holds."""
    for lock in Path(tempfile.gettempdir()).glob(f"{TEMPORARY_PREFIX}*/embedded.lock"):
        home = lock.parent
        with contextlib.suppress(OSError):
            if home.stat().st_uid != os.getuid():
                continue
            with starting_or_stopping(home), lock.open() as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                Postgres(home).stop()
                Valkey(home).stop()
            shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(run_in_temporary_home(sys.argv[1:]))

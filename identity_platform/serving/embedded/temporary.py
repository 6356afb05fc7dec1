"""A temporary home for one command: `python -m identity_platform.serving.embedded.temporary COMMAND ...`; used by bin/test."""

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

import psutil

from identity_platform.serving.embedded import attach, leave, starting_or_stopping
from identity_platform.serving.embedded.postgres import Postgres
from identity_platform.serving.embedded.valkey import Valkey

TEMPORARY_PREFIX = "identity-test-"
MEMORY = Path("/dev/shm")  # noqa: S108  # a folder of Linux; what is created there has a name of its own
# The whole test suite leaves about 13 GB of databases behind until it ends, and its processes take some more.
ENOUGH_MEMORY = 18 * 2**30


def run_in_temporary_home(command: Sequence[str]) -> int:
    """Run a command with an IDENTITY_VAR and embedded servers of its own, remove both, and give its exit code.

    A server whose URL is in the environment is not started. The servers are those of `unsafe_fast`.
    """
    _remove_forgotten_homes()
    home = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=folder_for_databases()))
    try:
        attach(var=home, postgres=not _is_set("DATABASE_URL"), valkey=not _is_set("REDIS_URL"), unsafe_fast=True)
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


def folder_for_databases() -> Path:
    """Return the folder for databases that last as long as one run.

    They are in memory if the machine has plenty of it, and TMPDIR names no other folder: on a disk, the files of a
    thousand databases that are about to be dropped take as long to write as the tests to run.
    """
    usual = Path(tempfile.gettempdir())
    if "TMPDIR" in os.environ or not MEMORY.is_dir():
        return usual
    free = [shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available]
    limit = Path("/sys/fs/cgroup/memory.max")
    with contextlib.suppress(OSError, ValueError):  # no such file outside a container, and "max" without a limit
        free.append(int(limit.read_text()))
    return MEMORY if min(free) > ENOUGH_MEMORY else usual


def _is_set(name: str) -> bool:
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


def _remove_forgotten_homes() -> None:
    """Remove the homes whose owner was killed: those whose lock is free."""
    folders = {Path(tempfile.gettempdir()), MEMORY}
    locks = [lock for folder in folders for lock in folder.glob(f"{TEMPORARY_PREFIX}*/embedded.lock")]
    for lock in locks:
        home = lock.parent
        with contextlib.suppress(OSError):
            if home.stat().st_uid != os.getuid():
                continue
            with starting_or_stopping(home), lock.open() as lock_file:
                fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                Postgres(home).stop()
                Valkey(home).stop()
            shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(run_in_temporary_home(sys.argv[1:]))

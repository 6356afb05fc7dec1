"""Folders for drafts that hold people's data: gone when the job ends; after a kill, with a later job beside it."""

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp

_PREFIX = ".identity-draft-"
_LOCK = ".lock"
# Locks do not reach from one machine to the other on every shared disk, but a running job writes.
_QUIET_SECONDS = 600


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield a folder in `parent` (else where temporary files go) that only its owner can enter, removed at the end.

    Those that killed jobs have left beside it ten minutes ago or earlier are removed first: nothing else would, and a
    tenant's dump would lie there for good. Raises OSError.
    """
    directory = parent or Path(gettempdir())
    for left in directory.glob(f"{_PREFIX}*"):
        _remove_if_stale(left)
    folder, lock = _locked_folder(directory)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked_folder(directory: Path) -> tuple[Path, int]:
    while True:
        folder = Path(mkdtemp(prefix=_PREFIX, dir=directory))
        # Until it is locked, another job may take it for one that was left, and remove it: then once more.
        with suppress(BlockingIOError, FileNotFoundError):
            lock = _locked(folder)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(folder / _LOCK), os.fstat(lock)):
                    return folder, lock
            os.close(lock)


def _remove_if_stale(left: Path) -> None:
    # What cannot be read or locked belongs to another user or is in use.
    with suppress(OSError):
        status = left.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and _is_quiet(left):
            lock = _locked(left)
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)


def _is_quiet(folder: Path) -> bool:
    newest = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
    return time.time() - newest > _QUIET_SECONDS


def _locked(folder: Path) -> int:
    """A lock that ends with the process, not with the programs that it has started (PEP 446); BlockingIOError if held."""
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle

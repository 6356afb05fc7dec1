"""The servers' processes: found by their titles, started quietly, ended for certain."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from identity_platform.serving.embedded.errors import EmbeddedServerFailed

if TYPE_CHECKING:
    import psutil

STOP_TIMEOUT = 20.0


def processes_like(ours: Callable[[Sequence[str]], bool]) -> list[psutil.Process]:
    """Give the server processes whose command line or title `ours` recognises."""
    import psutil

    processes = []
    for process in psutil.process_iter(["name", "cmdline"]):
        words = process.info["cmdline"] or []
        if process.info["name"] in {"postgres", "valkey-server"} and ours(words):
            processes.append(process)
    return processes


def alive(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    import psutil

    running = []
    for process in processes:
        # Without an init process zombies are not reaped: a zombie has ended.
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
    return running


def end(processes: Sequence[psutil.Process], *, politely: signal.Signals) -> None:
    """End them: with the signal `politely` if they heed it, with SIGKILL if not."""
    import psutil

    for order, seconds in ((politely, STOP_TIMEOUT), (signal.SIGKILL, 5.0)):
        for process in alive(processes):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(order)
        deadline = time.monotonic() + seconds
        while alive(processes) and time.monotonic() < deadline:
            time.sleep(0.01)


def is_taken(pid: str) -> bool:
    """Whether a process of this number exists, running or not yet reaped."""
    import psutil

    return pid.isdigit() and psutil.pid_exists(int(pid))


def run_quietly(command: Sequence[str], uid: int, gid: int, *, failure: str, log: Path) -> None:
    """Run a program of the servers, as root under `uid` and `gid`.

    Raises EmbeddedServerFailed: the text `failure`, what the program said, and the end of the server's log.
    """
    other = os.getuid() == 0 and uid != 0
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    # A file, not a pipe: the server inherits it, and reading a pipe to its end would wait for the server's end.
    with tempfile.TemporaryFile() as output:
        status = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment | {"LC_ALL": "C"},
            check=False,
            user=uid if other else None,
            group=gid if other else None,
            extra_groups=[] if other else None,
        ).returncode
        output.seek(0)
        said = output.read().decode(errors="replace")
    if status:
        raise EmbeddedServerFailed(f"{failure}\n{said}\n{tail(log)}")


def tail(log: Path) -> str:
    """Give the last lines of a log for a message; nothing when there is no log."""
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
    return ""

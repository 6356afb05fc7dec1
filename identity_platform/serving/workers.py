"""Run worker commands beside the server in embedded mode: start, watch and stop their processes.

In production a service manager runs these commands.
"""

import ctypes
import io
import mmap
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing import connection

WORKER_COMMANDS = ("tenant_worker", "deliver_events")
# Runs beside them where there is a demo tenant.
SAMPLE_COMMAND = "serve_sample"
# Exit code of `prepare` if the global database was restored and no operator has adopted it: a later run may succeed.
FENCED = 75
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
FINISH_SECONDS = 10
# Shared by a server and the workers it forks: 1 once it is about to stop.
STOPPING = mmap.mmap(-1, 1)
# Doubled each time that it does not live longer than that: a database that is away for an hour costs little.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0


class WorkerProcess:
    """One command in a process of its own, restarted with increasing delays after it ends."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.pause = FIRST_PAUSE
        self.process: multiprocessing.Process | None = None
        self.began = self.due = 0.0

    def start(self) -> None:
        """Start the process, or retry later if the machine cannot create one."""
        self.began = time.monotonic()
        process = multiprocessing.Process(target=_work, args=(os.getpid(), self.command))
        try:
            process.start()
        except OSError:
            self._put_off()
        else:
            self.process = process

    def mark_ended(self) -> None:
        """Record that the process ended by itself and schedule its restart."""
        if self.process is not None:
            # Not closed too: that raises while another thread, which is about to start a process, takes its status.
            self.process.join()
        self.process = None
        self._put_off()

    def _put_off(self) -> None:
        now = time.monotonic()
        if now - self.began > LONGEST_PAUSE:
            self.pause = FIRST_PAUSE
        self.due, self.pause = now + self.pause, min(2 * self.pause, LONGEST_PAUSE)


class WorkerProcesses:
    """The worker processes, watched by a thread until `end`."""

    def __init__(self, commands: list[str]) -> None:
        self._processes = [WorkerProcess(command) for command in commands]
        self._stop_read, self._stop_write = multiprocessing.Pipe(duplex=False)
        # Those that are forked by a thread end with that thread, not with the process (prctl(2), PR_SET_PDEATHSIG):
        # it is the one that starts them all, and outlives them.
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._started = threading.Event()
        self._watcher.start()
        # The caller forks too: not while this thread imports what it needs for it.
        self._started.wait()

    def end(self) -> None:
        """Stop the processes. Work in progress has ten seconds to finish."""
        self._stop_write.send_bytes(b"end")
        self._watcher.join()

    def _watch(self) -> None:
        while True:
            now = time.monotonic()
            for worker in self._processes:
                if worker.process is None and worker.due <= now:
                    worker.start()
            self._started.set()
            living = {worker.process.sentinel: worker for worker in self._processes if worker.process is not None}
            pauses = [worker.due - now for worker in self._processes if worker.process is None]
            ended = connection.wait([self._stop_read, *living], timeout=min(pauses, default=None))
            if self._stop_read in ended:
                break
            for sentinel in ended:
                if isinstance(sentinel, int):
                    living[sentinel].mark_ended()
        processes = [worker.process for worker in self._processes if worker.process is not None]
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(FINISH_SECONDS)
            process.kill()


def exit_with_parent(parent: int) -> None:
    """Make the kernel end this process with its parent. An orphan would keep the port of the next start."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_await_the_end_of, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _await_the_end_of(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _work(parent: int, command: str) -> None:
    # A terminal sends Ctrl-C to the whole group; the parent tells a worker process when to finish. What it inherited
    # for signals is the parent's: until the command has its own, one ends it.
    os.setpgid(0, 0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    exit_with_parent(parent)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, command.encode())
    import django
    import structlog
    from django.core.management import call_command

    django.setup()
    try:
        # The command prints when it is ready, which is not needed here, and returns after a signal.
        call_command(command, stdout=io.StringIO())
    except Exception as problem:
        structlog.get_logger().error(f"{command} failed", kind=type(problem).__qualname__)
        sys.exit(1)

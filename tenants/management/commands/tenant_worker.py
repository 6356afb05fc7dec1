"""Fill the warm pool, seal audit trails, collect metrics and delete expired rows, until stopped."""

import io
import signal
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Callable

import structlog
from django.conf import settings
from django.core.management import call_command
from django.db import close_old_connections, connections

from identity_platform.serving import embedded
from tenants import audit_trails, rejections, retention, warm_pool
from tenants.management import terminal
from tenants.schema import why

log = structlog.get_logger("identity.tenants")

DAY = 86_400.0


class Command(terminal.OperatorCommand):
    help = (
        "Keep ready-made databases waiting on every server that accepts tenants, so that creating a tenant takes "
        "milliseconds; seal new audit events and collect the console's metrics. With embedded servers, which have no other "
        "scheduler, also run purge_expired once a day. Runs until SIGTERM or Ctrl-C; several machines can run it. "
        "Example: tenant_worker --size 20"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--size", type=int, default=settings.TENANT_WARM_POOL, help="Databases for each server.")
        parser.add_argument(
            "--every", type=float, default=1.0, help="Seconds between two checks of the pool (default 1)."
        )
        parser.add_argument(
            "--seal-every", type=float, default=60.0, help="Seconds between two sealings of the audit trails; 0: never."
        )
        parser.add_argument(
            "--figures-every", type=float, default=300.0, help="Seconds between two collections of metrics; 0: never."
        )
        parser.add_argument(
            "--purge-every",
            type=float,
            default=DAY if embedded.attached() else 0.0,
            help="Seconds between two runs of purge_expired; 0: never (default: a day with embedded servers, else 0).",
        )
        parser.add_argument("--once", action="store_true", help="Fill the pool once and exit.")

    def handle(
        self,
        *,
        size: int,
        every: float,
        seal_every: float,
        figures_every: float,
        purge_every: float,
        once: bool,
        **_: object,
    ) -> None:
        if once:
            self._fill_once(size)
            return
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        # In threads of their own, so that many trails do not delay the warm pool. The first metrics come soon, so that a new
        # installation's console shows some; the first purge too, for machines that do not run at night.
        _start_thread(_seal, seal_every, seal_every, stopping)
        _start_thread(lambda _: _collect(figures_every / 2), figures_every, 5.0, stopping)
        _start_thread(_purge, purge_every, 600.0, stopping)
        self.stdout.write("Ready.")
        self.stdout.flush()
        while not stopping.is_set():
            _fill(size, stopping.is_set)
            stopping.wait(every)

    def _fill_once(self, size: int) -> None:
        made, problems = warm_pool.refill_all(size)
        self.stdout.write(f"{made} made.")
        for problem in problems:
            self.stderr.write(problem)
        if problems:
            sys.exit(1)


def _start_thread(
    work: Callable[[Callable[[], bool]], None], every: float, first_wait: float, stopping: threading.Event
) -> None:
    """Call `work` periodically. The thread is a daemon: each step is one short transaction that can be interrupted."""

    def run() -> None:
        wait = min(every, first_wait)
        while not stopping.wait(wait):
            wait = every
            try:
                work(stopping.is_set)
            finally:
                connections.close_all()

    if every > 0:
        threading.Thread(target=run, daemon=True).start()


# Each of these catches every error: its thread must survive.


def _seal(stopping: Callable[[], bool]) -> None:
    try:
        rejections.record_leftovers()
        events, problems = audit_trails.seal_all(until=stopping)
        if problems:
            log.warning("audit_trails_not_sealed", trails=len(problems), first=problems[0])
        if events:
            log.info("audit_events_sealed", events=events)
    except Exception as problem:
        log.warning("audit_trails_not_sealed", cause=why(problem))


def _collect(older_than: float) -> None:
    try:
        # Called by name, as the console is a higher layer. Skips what another machine has just collected.
        call_command("collect_figures", older_than=older_than, stdout=io.StringIO())
    except SystemExit:
        log.warning("figures_not_collected", cause="some tenants failed: their pages show the reason")
    except Exception as problem:
        log.warning("figures_not_collected", cause=why(problem))


def _purge(stopping: Callable[[], bool]) -> None:
    try:
        if problems := retention.purge_all(until=stopping):
            log.warning("expired_rows_stay", owners=len(problems), first=problems[0])
    except Exception as problem:
        log.warning("expired_rows_stay", cause=why(problem))


def _fill(size: int, stopping: Callable[[], bool]) -> None:
    close_old_connections()
    try:
        made, problems = warm_pool.refill_all(size, until=stopping)
    except Exception as problem:
        # The next round tries again; an empty pool only makes new tenants slower.
        made, problems = 0, [why(problem)]
    if made:
        log.info("warm_databases_made", made=made)
    if problems:
        log.warning("warm_pool_not_filled", servers=len(problems), cause=problems[0])

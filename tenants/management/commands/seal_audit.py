import signal
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Callable

from django.core.management.base import CommandError
from django.db import close_old_connections

from identity_platform.api.errors import ApiError
from tenants.failure_reasons import why
from tenants.journals import audit_trails
from tenants.management import terminal
from tenants.middleware import rejections


class Command(terminal.OperatorCommand):
    help = (
        "Add the audit events since the last run to the hash chains of the platform and of all tenants, or of those named. "
        "Safe to run at any time and on several machines. Exit code 0: done; 1: a trail could not be reached. "
        "Example: seal_audit --every 60"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("only", nargs="*", metavar="TENANT", help="Slug or id of a tenant, or `platform`.")
        parser.add_argument("--every", type=float, help="Run until stopped, with this many seconds between two rounds.")

    def handle(self, *, only: list[str], every: float | None, **_: object) -> None:
        if every is None:
            sys.exit(1 if self._round(only, stopping=lambda: False) else 0)
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        while not stopping.is_set():
            close_old_connections()
            try:
                self._round(only, stopping=stopping.is_set)
            except (CommandError, ApiError):
                raise
            except Exception as problem:
                # The next round seals the events, once the database is available again.
                self.stderr.write(f"Nothing is sealed: {why(problem)}.")
            stopping.wait(every)

    def _round(self, only: list[str], *, stopping: Callable[[], bool]) -> int:
        """Seal every trail once; return how many could not be reached."""
        owners = audit_trails.owners(only)
        # Before sealing, so that this round covers these events.
        rejections.record_leftovers()
        failed = events = links = 0
        for owner in owners:
            if stopping():
                break
            try:
                sealed = audit_trails.seal(owner)
            except audit_trails.TrailUnreachable as problem:
                failed += 1
                self.stderr.write(f"{owner.name}: {problem}")
                continue
            events, links = events + sealed.events, links + sealed.links
            if sealed.held_back:
                self.stdout.write(f"{owner.name}: a transaction is still open; the next round seals the rest.")
        done = [
            f"{terminal.counted(events, 'event')} sealed in {terminal.counted(links, 'link')}",
            terminal.counted(len(owners), "trail"),
            f"{failed} not reached.",
        ]
        self.stdout.write(", ".join(done))
        return failed

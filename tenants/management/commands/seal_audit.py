"""`seal_audit`: new events of the audit trails under their hash chains."""

import signal
import sys
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import close_old_connections

from identity_platform.api.errors import ApiError
from tenants import audit_trails, rejections
from tenants.management import terminal
from tenants.schema import why


class Command(BaseCommand):
    help = (
        "Put the events that were written since the last run under the hash chain: of the platform and of all tenants, "
        "or of those named. Harmless at any time and on several machines. Exit code 0: done; 1: a trail could not be "
        "reached. Example: seal_audit --every 60"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("only", nargs="*", metavar="TENANT", help="Slug or id of a tenant, or `platform`.")
        parser.add_argument("--every", type=float, help="Go on for ever, with so many seconds between two rounds.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["every"] is None:
            sys.exit(1 if self._round(options["only"], ending=lambda: False) else 0)
        ending = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ending.set())
        while not ending.is_set():
            close_old_connections()
            try:
                self._round(options["only"], ending=ending.is_set)
            except CommandError:
                raise
            except Exception as problem:
                # The database comes back, or is repaired; the events wait for the next round.
                self.stderr.write(f"Nothing is sealed: {why(problem)}.")
            ending.wait(options["every"])

    def _round(self, only: list[str], *, ending: Any) -> int:
        """One look at every trail; gives how many could not be reached."""
        try:
            owners = audit_trails.owners(only)
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        # Events of this round, and of whichever trails they are.
        rejections.record_leftovers()
        failed = events = links = 0
        for owner in owners:
            if ending():
                break
            try:
                sealed = audit_trails.seal(owner)
            except audit_trails.TrailUnreachable as problem:
                failed += 1
                self.stderr.write(f"{owner.name}: {problem}")
                continue
            events, links = events + sealed.events, links + sealed.links
            if sealed.held_back:
                self.stdout.write(f"{owner.name}: a transaction still runs, the rest waits for the next round.")
        done = [
            f"{terminal.counted(events, 'event')} sealed in {terminal.counted(links, 'link')}",
            terminal.counted(len(owners), "trail"),
            f"{failed} not reached.",
        ]
        self.stdout.write(", ".join(done))
        return failed

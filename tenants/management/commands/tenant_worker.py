"""`tenant_worker`: keeps ready-made databases in stock, audit trails sealed, figures fresh and expired rows few."""

import io
import signal
import sys
import threading
from argparse import ArgumentParser
from typing import Any

import structlog
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import close_old_connections, connections

from identity_platform.serving import embedded
from tenants import audit_trails, rejections, retention, warm_pool
from tenants.schema import why

log = structlog.get_logger("identity.tenants")

DAY = 86_400.0


class Command(BaseCommand):
    help = (
        "Keep ready-made databases waiting on every server that takes tenants, so that a new tenant is a claim of a "
        "millisecond, put new audit events under their hash chains and collect the console's figures; with embedded "
        "servers, where nothing else has a schedule, also run purge_expired once a day. Runs until SIGTERM or Ctrl-C and "
        "may run on several machines. Example: tenant_worker --size 20"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--size", type=int, default=settings.TENANT_WARM_POOL, help="Databases for each server.")
        parser.add_argument("--every", type=float, default=1.0, help="Seconds between two looks (default 1).")
        parser.add_argument(
            "--seal-every", type=float, default=60.0, help="Seconds between two rounds over the audit trails; 0: none."
        )
        parser.add_argument(
            "--figures-every", type=float, default=300.0, help="Seconds between two collections of figures; 0: none."
        )
        parser.add_argument(
            "--purge-every",
            type=float,
            default=DAY if embedded.attached() else 0.0,
            help="Seconds between two runs of purge_expired; 0: none (a day with embedded servers, else 0).",
        )
        parser.add_argument("--once", action="store_true", help="Fill up and end.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["once"]:
            made, problems = warm_pool.refill_all(options["size"])
            self.stdout.write(f"{made} made.")
            for problem in problems:
                self.stderr.write(problem)
            if problems:
                sys.exit(1)
            return
        ending = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ending.set())
        if options["seal_every"] > 0:
            # Of its own, so that a fleet of many trails does not let the stock run low; ends with the process, as a
            # link is one short transaction that may be left off anywhere.
            threading.Thread(target=self._seal, args=(options["seal_every"], ending), daemon=True).start()
        if options["figures_every"] > 0:
            threading.Thread(target=self._collect, args=(options["figures_every"], ending), daemon=True).start()
        if options["purge_every"] > 0:
            threading.Thread(target=self._purge, args=(options["purge_every"], ending), daemon=True).start()
        self.stdout.write("Ready.")
        self.stdout.flush()
        while not ending.is_set():
            self._look(options["size"], ending.is_set)
            ending.wait(options["every"])

    def _seal(self, every: float, ending: threading.Event) -> None:
        while not ending.wait(every):
            try:
                rejections.record_leftovers()
                events, problems = audit_trails.seal_all(until=ending.is_set)
                if problems:
                    log.warning("audit_trails_not_sealed", trails=len(problems), first=problems[0])
                if events:
                    log.info("audit_events_sealed", events=events)
            except Exception as problem:
                # The thread must live on whatever one round meets.
                log.warning("audit_trails_not_sealed", cause=why(problem))
            finally:
                # Nothing is held between two rounds.
                connections.close_all()

    def _collect(self, every: float, ending: threading.Event) -> None:
        # Soon after the start, so that a new machine's console has something to show.
        wait = min(every, 5.0)
        while not ending.wait(wait):
            wait = every
            try:
                # By name: the console is above this app. What another machine has just looked at is left out.
                call_command("collect_figures", older_than=every / 2, stdout=io.StringIO())
            except SystemExit:
                log.warning("figures_not_collected", cause="some tenants failed: their pages say why")
            except Exception as problem:
                log.warning("figures_not_collected", cause=why(problem))
            finally:
                connections.close_all()

    def _purge(self, every: float, ending: threading.Event) -> None:
        # The first time soon, as a machine that is switched off at night would else never come to it.
        wait = min(every, 600.0)
        while not ending.wait(wait):
            wait = every
            try:
                if problems := retention.purge_all(until=ending.is_set):
                    log.warning("expired_rows_stay", owners=len(problems), first=problems[0])
            except Exception as problem:
                log.warning("expired_rows_stay", cause=why(problem))
            finally:
                connections.close_all()

    def _look(self, size: int, ending: Any) -> None:
        close_old_connections()
        try:
            made, problems = warm_pool.refill_all(size, until=ending)
        except Exception as problem:
            # The server comes back or is repaired; a stock that is low only makes new tenants slower.
            made, problems = 0, [why(problem)]
        if made:
            log.info("warm_databases_made", made=made)
        if problems:
            log.warning("warm_pool_not_filled", servers=len(problems), cause=problems[0])

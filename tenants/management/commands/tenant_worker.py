"""`tenant_worker`: keeps ready-made databases in stock."""

import signal
import threading
from argparse import ArgumentParser
from typing import Any

import structlog
from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import DatabaseError, close_old_connections
from psycopg import Error as DriverError

from tenants import warm
from tenants.schema import reason_of

log = structlog.get_logger("identity.tenants")


class Command(BaseCommand):
    help = (
        "Keep ready-made databases waiting on every server that takes tenants, so that a new tenant is a claim of a "
        "millisecond. Runs until SIGTERM or Ctrl-C and may run on several machines. Example: tenant_worker --size 20"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--size", type=int, default=settings.TENANT_WARM_POOL, help="Databases for each server.")
        parser.add_argument("--every", type=float, default=1.0, help="Seconds between two looks (default 1).")
        parser.add_argument("--once", action="store_true", help="Fill up and end.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["once"]:
            self.stdout.write(f"{warm.refill_all(options['size'])} made.")
            return
        ending = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ending.set())
        self.stdout.write("Ready.")
        self.stdout.flush()
        while not ending.is_set():
            self._look(options["size"], ending.is_set)
            ending.wait(options["every"])

    def _look(self, size: int, ending: Any) -> None:
        close_old_connections()
        try:
            if made := warm.refill_all(size, until=ending):
                log.info("warm_databases_made", made=made)
        except (DatabaseError, DriverError) as problem:
            # The server comes back or is repaired; a stock that is low only makes new tenants slower.
            log.warning("warm_pool_not_filled", cause=reason_of(problem))

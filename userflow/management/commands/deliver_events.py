"""`deliver_events`: sends the webhook messages that wait in the tenants' outboxes."""

import signal
import threading
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from userflow import mail
from userflow.webhooks.deliverer import Deliverer


class Command(BaseCommand):
    help = (
        "Send the webhook messages that wait, to each endpoint in its order, with retries, until SIGTERM or Ctrl-C; what "
        "is in flight by then is finished. May run on several machines, and may be killed: nothing is lost. "
        "Example: deliver_events --threads 32, or from a scheduler: deliver_events --once"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--threads", type=int, default=settings.WEBHOOK_THREADS, help="Endpoints served at the same moment."
        )
        parser.add_argument("--once", action="store_true", help="Send what is due now, and end.")

    def handle(self, *args: Any, **options: Any) -> None:
        ending = threading.Event()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: ending.set())
        deliverer = Deliverer(threads=max(1, options["threads"]), ending=ending.is_set)
        if options["once"]:
            deliverer.run_once()
        else:
            self.stdout.write("Ready.")
            self.stdout.flush()
            deliverer.run()
        mail.settle()

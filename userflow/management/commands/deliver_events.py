import math
import signal
import threading
from argparse import ArgumentParser
from typing import Final

from django.conf import settings

from identity_platform import tracing
from identity_platform.serving import metrics_server
from tenants.backend.base import LEASES
from tenants.backend.pool import POOL
from tenants.database_servers import servers
from tenants.journals import deliveries
from tenants.management import terminal
from userflow.mail_delivery import background
from userflow.mail_delivery.deliverer import THREADS as MAIL_THREADS
from userflow.mail_delivery.deliverer import MailDeliverer
from userflow.webhooks.deliverer import Deliverer

# Requests of the tenants need the connections that are left then.
IDLE_SECONDS: Final = 5.0


class Command(terminal.OperatorCommand):
    help = (
        "Send pending webhook messages, in order per endpoint and with retries, and mails that the mail server did not take, "
        "and deliver what tenants' databases have noted for the global one, until SIGTERM or Ctrl-C; deliveries in flight are "
        "finished. Can run on several machines and can be killed without losing anything. "
        "Example: deliver_events --threads 32, or from a scheduler: deliver_events --once"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--threads", type=int, default=settings.WEBHOOK_THREADS, help="Endpoints served concurrently."
        )
        parser.add_argument("--once", action="store_true", help="Send due messages and exit.")
        metrics_server.add_argument(parser)

    def handle(self, *args: object, threads: int, once: bool = False, metrics: str = "", **options: object) -> None:
        ending = threading.Event()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: ending.set())
        deliverer = Deliverer(threads=max(1, threads), ending=ending.is_set)
        mails = MailDeliverer(ending=ending.is_set)
        if once:
            while deliveries.deliver_due():
                pass
            mails.run_once()
            deliverer.run_once()
        else:
            metrics_server.start(metrics)
            tracing.set_up()
            # One for each thread: a slow tenant holds up no other.
            POOL.yield_to_requests(
                most=max(1, threads) + MAIL_THREADS + deliveries.THREADS,
                wait=POOL.wait,
                keep_seconds=IDLE_SECONDS,
                open_per_second=math.inf,
            )
            # Its threads, this one, and those that send mails and renew leases.
            own_connections = servers.global_connections(max(1, threads) + MAIL_THREADS + deliveries.THREADS + 1)
            LEASES.start(global_connections=own_connections, command="deliver_events")
            self.stdout.write("Ready.")
            self.stdout.flush()
            others = [threading.Thread(target=mails.run, name="mail deliverer")]
            others += [
                threading.Thread(target=deliveries.run, args=[ending.is_set], name="noted rows")
                for _ in range(deliveries.THREADS)
            ]
            for thread in others:
                thread.start()
            try:
                deliverer.run()
            finally:
                ending.set()
                for thread in others:
                    thread.join()
        background.settle()

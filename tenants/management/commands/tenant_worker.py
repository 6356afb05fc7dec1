import math
import sys
from argparse import ArgumentParser

from django.conf import settings

from identity_platform import task_queue
from identity_platform.serving import embedded, metrics_server
from tenants import operating_modes, tasks
from tenants.backend.base import LEASES
from tenants.backend.pool import POOL
from tenants.database_servers import servers
from tenants.lifecycle import warm_pool
from tenants.management import terminal

DAY = 86_400.0
# More console jobs at once would take connections and cores from requests. Periodic tasks of one kind run one at a time.
QUEUES = {"console": 2, task_queue.PERIODIC: 6}


class Command(terminal.OperatorCommand):
    help = (
        "Run the jobs that operators start in the console, and periodic tasks: keep ready-made databases waiting on every "
        "server that accepts tenants, so that creating a tenant takes milliseconds; seal new audit events; collect the "
        "console's metrics; on request, synchronize directories and purge expired rows; look up the "
        "records of tenants' domains; compare the index of end users with the tenants' databases; create the indexes "
        "for text search of large tenants; write records of tenants and clients that their databases lack. "
        "Runs until SIGTERM or Ctrl-C; several machines can run it and share the work. "
        "Intervals are rounded to whole seconds, minutes, hours or days. "
        "Example: tenant_worker --size 20"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        scheduled = DAY if embedded.attached() else 0.0
        parser.add_argument("--size", type=int, default=settings.TENANT_WARM_POOL, help="Databases for each server.")
        parser.add_argument("--every", type=float, default=1.0, help="Seconds between two looks for work (default 1).")
        parser.add_argument(
            "--seal-every", type=float, default=60.0, help="Seconds between two sealings of the audit trails; 0: never."
        )
        parser.add_argument(
            "--figures-every", type=float, default=300.0, help="Seconds between two collections of metrics; 0: never."
        )
        parser.add_argument(
            "--purge-every",
            type=float,
            default=scheduled,
            help="Seconds between two runs of purge_expired; 0: never (default: a day with embedded servers, else 0).",
        )
        parser.add_argument(
            "--directories-every",
            type=float,
            default=min(scheduled, 300.0),
            help="Seconds between two runs of sync_directory --all-due; 0: never (default: 300 with embedded servers, "
            "else 0).",
        )
        parser.add_argument(
            "--domains-every",
            type=float,
            default=DAY,
            help="Seconds between two look-ups of the TXT records of tenants' domains; 0: never (default: a day).",
        )
        parser.add_argument(
            "--index-every",
            type=float,
            default=DAY,
            help="Seconds between two runs of index_end_users and of index_text_search; 0: never (default: a day).",
        )
        parser.add_argument(
            "--tenants-per-second",
            type=terminal.at_least(0),
            default=15,
            help="How many tenants the periodic tasks visit in a second at most, fewer while their server is busy, so that "
            "requests keep the processors (default 15); 0: without a limit.",
        )
        parser.add_argument("--once", action="store_true", help="Fill the pool once and exit.")
        metrics_server.add_argument(parser)

    def handle(
        self,
        *,
        size: int,
        every: float,
        seal_every: float,
        figures_every: float,
        purge_every: float,
        directories_every: float,
        domains_every: float,
        index_every: float,
        tenants_per_second: int,
        once: bool,
        metrics: str,
        **_: object,
    ) -> None:
        if once:
            self._fill_once(size)
            return
        metrics_server.start(metrics)
        POOL.yield_to_requests(
            most=servers.BACKGROUND_CONNECTIONS,
            wait=servers.BACKGROUND_WAIT_SECONDS,
            keep_seconds=0.0,
            open_per_second=tenants_per_second or math.inf,
        )
        LEASES.start(global_connections=servers.TENANT_WORKER_CONNECTIONS, command="tenant_worker")
        task_queue.run_worker(
            QUEUES,
            # Provisioning asks for a refill itself. Once a minute for other reasons: a new server, a new schema version.
            every={
                warm_pool.REFILL: 60.0,
                tasks.CHECK: 60.0,
                # Processes deliver their own revocations: this is for those that could not.
                tasks.DELIVER: 3600.0,
                # For changes that were interrupted or made while the database was away.
                tasks.RECORDS: 600.0,
                tasks.SEAL: seal_every,
                tasks.PURGE: purge_every,
                # By name, as these apps are higher layers.
                "collect_figures": figures_every,
                "synchronize_directories": directories_every,
                "check_domains": domains_every,
                "index_end_users": index_every,
                "index_text_search": index_every,
            },
            poll_seconds=every,
            options={"warm_pool": size, task_queue.IS_PAUSED: operating_modes.is_background_paused},
            ready=self._say_ready,
        )

    def _say_ready(self) -> None:
        self.stdout.write("Ready.")
        self.stdout.flush()

    def _fill_once(self, size: int) -> None:
        made, problems = warm_pool.refill_all(size)
        self.stdout.write(f"{made} made.")
        for problem in problems:
            self.stderr.write(problem)
        if problems:
            sys.exit(1)

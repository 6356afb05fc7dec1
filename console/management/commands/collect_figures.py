"""`collect_figures`: collect the metrics of all tenants for the console's dashboard and lists."""

import sys
from argparse import ArgumentParser

from django.core.management.base import CommandError

from console.metrics.actions import SETTLED_SECONDS, Outcome, collect_figures
from identity_platform.api.errors import ApiError
from tenants.management import terminal


class Command(terminal.OperatorCommand):
    help = (
        "Update the metrics of the operators' console: users, factors, sizes and response times of the tenants' "
        "databases, and sign-ins, new users and registry calls per day. A tenant that fails keeps its old metrics and the "
        "reason. tenant_worker does the same every few minutes. Exit code 0: all tenants are up to date; 1: a tenant "
        "failed; 2: there is no such tenant. Example: collect_figures --tenant acme"
    )
    after_interruption = "Run it again with --older-than SECONDS to leave out tenants that are up to date."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", action="append", default=[], metavar="SLUG", help="Only this one; repeatable.")
        parser.add_argument("--jobs", type=int, default=4, help="Tenants at the same time (default 4).")
        parser.add_argument(
            "--older-than",
            type=float,
            default=0,
            metavar="SECONDS",
            help="Skip tenants that were collected since, to continue an interrupted run.",
        )
        parser.add_argument(
            "--settled",
            type=int,
            default=SETTLED_SECONDS,
            metavar="SECONDS",
            help=f"Events younger than this wait for the next run (default {SETTLED_SECONDS}).",
        )

    def handle(self, *, tenant: list[str], jobs: int, older_than: float, settled: int, **_: object) -> None:
        if jobs < 1:
            raise CommandError("--jobs must be at least 1.", returncode=terminal.NOT_TRIED)
        with terminal.progress(self.stdout, "Collecting") as (begun, step):

            def progress(outcome: Outcome) -> None:
                step(f"{outcome.slug}: {outcome.failure or f'{outcome.seconds * 1000:.0f} ms'}")

            try:
                outcomes = collect_figures(
                    only=tenant,
                    jobs=jobs,
                    older_than=older_than,
                    settled=settled,
                    begun=begun,
                    progress=progress,
                )
            except ApiError as error:
                raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        failed = [outcome for outcome in outcomes if outcome.failure]
        self.stdout.write(f"{len(outcomes) - len(failed)} up to date, {len(failed)} failed.")
        if failed:
            terminal.table(self.stdout, ("tenant", "reason"), [(each.slug, each.failure) for each in failed])
            sys.exit(1)

"""`index_text_search`: create the indexes for text inside addresses and names of end users."""

import sys
from argparse import ArgumentParser

from tenants.management import terminal
from userflow.endusers.text_indexes import LARGE, Outcome, Result, index_text_search


class Command(terminal.OperatorCommand):
    help = (
        f"Create the indexes by which lists find text inside the addresses and names of end users: of tenants with {LARGE} "
        "users or more, or of the given ones. Needs the extension pg_trgm on their database servers; requests are served "
        "meanwhile. tenant_worker does it every day. Can be interrupted and repeated. Exit code 0: the indexes exist; 1: they "
        "could not be created for a tenant; 2: there is no such tenant. Example: index_text_search --tenant acme"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", action="append", default=[], metavar="SLUG", help="Only this one; repeatable.")

    def handle(self, *, tenant: list[str], **_: object) -> None:
        with terminal.progress(self.stdout, "Indexing") as (begun, step):

            def progress(outcome: Outcome) -> None:
                step(f"{outcome.slug}: {outcome.reason or outcome.result}")

            outcomes = index_text_search(only=tenant, begun=begun, progress=progress)
        created = sum(outcome.result is Result.CREATED for outcome in outcomes)
        without = [outcome for outcome in outcomes if outcome.result in (Result.UNAVAILABLE, Result.FAILED)]
        self.stdout.write(
            f"{created} indexed, {len(outcomes) - created - len(without)} had indexes, {len(without)} without."
        )
        if without:
            terminal.table(self.stdout, ("tenant", "reason"), [(each.slug, each.reason) for each in without])
            sys.exit(1)

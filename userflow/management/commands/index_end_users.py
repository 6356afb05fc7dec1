"""`index_end_users`: make the index of the console's search equal to the tenants' databases."""

import sys
from argparse import ArgumentParser

from tenants.management import terminal
from userflow.user_index.actions import Outcome, index_end_users


class Command(terminal.OperatorCommand):
    help = (
        "Compare the index by which the console's search finds end users with the tenants' databases, and correct it. "
        "Needed once after the upgrade to the release with the search, and after a restore of the global database; "
        "tenant_worker does it every day. Can be interrupted and repeated. Exit code 0: the index is correct; 1: a tenant "
        "failed; 2: there is no such tenant. Example: index_end_users --tenant acme --dry-run"
    )
    after_interruption = terminal.STARTS_OVER

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", action="append", default=[], metavar="SLUG", help="Only this one; repeatable.")
        parser.add_argument("--dry-run", action="store_true", help="Report the differences and change nothing.")

    def handle(self, *, tenant: list[str], dry_run: bool, **_: object) -> None:
        with terminal.progress(self.stdout, "Comparing") as (begun, step):

            def progress(outcome: Outcome) -> None:
                step(f"{outcome.slug}: {outcome.failure or _described(outcome)}")

            outcomes = index_end_users(only=tenant, dry_run=dry_run, begun=begun, progress=progress)
        failed = [outcome for outcome in outcomes if outcome.failure]
        differing = sum(outcome.difference.total for outcome in outcomes)
        did = "Entries that differ" if dry_run else "Entries corrected"
        self.stdout.write(f"{len(outcomes) - len(failed)} compared, {len(failed)} failed. {did}: {differing}.")
        if failed:
            terminal.table(self.stdout, ("tenant", "reason"), [(each.slug, each.failure) for each in failed])
            sys.exit(1)


def _described(outcome: Outcome) -> str:
    difference = outcome.difference
    if not difference.total:
        return "no difference"
    return f"{difference.missing} missing, {difference.outdated} outdated, {difference.surplus} surplus"

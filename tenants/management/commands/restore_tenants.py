import sys
from argparse import ArgumentParser

from tenants.backups import backup_lists, backup_sets
from tenants.backups.backup_locations import located
from tenants.management import terminal
from tenants.management.commands.backup_tenants import line


class Command(terminal.OperatorCommand):
    help = (
        "Restore tenants from a backup of backup_tenants, each into a new database to which it is then switched. Changes since "
        "the backup are lost. Run it again to restore those that failed. Exit code 0: all were restored; 1: some failed and "
        "are unchanged; 2: nothing was changed. Example: restore_tenants /backups/platform-20261123T020000Z --lost"
    )
    after_interruption = (
        "Tenants that were restored stay so. Run it again with --lost, or with --only for the others: --all restores every "
        "tenant once more."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", help="The folder or s3://bucket/prefix of the backup.")
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--only", metavar="SLUG", action="append", default=[], help="This tenant; can be repeated.")
        which.add_argument(
            "--lost",
            action="store_true",
            help="All whose database is lost: `check_tenants --repair` marks them as failed.",
        )
        which.add_argument("--all", action="store_true", help="All in the backup.")
        terminal.add_jobs(parser)
        parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")

    def handle(self, *, folder: str, only: list[str], lost: bool, all: bool, jobs: int, yes: bool, **_: object) -> None:
        with terminal.file_errors(folder):
            backup_set = backup_lists.read(located(folder).itself())
        slugs = (
            [file.slug for file in backup_set.tenants]
            if all
            else backup_sets.lost_tenants(backup_set)
            if lost
            else only
        )
        tenants = terminal.counted(len(slugs), "tenant")
        if not slugs:
            self.stdout.write("No tenant of this backup has lost its database. Nothing was changed.")
            return
        question = f"Changes in {tenants} since {backup_set.started} will be lost."
        terminal.confirm(self.stdout, question, backup_set.location.name, yes=yes)
        with terminal.progress(self.stdout, "Restoring tenants") as (start, step):
            failed = backup_sets.restore_tenants(
                backup_set, slugs, jobs=jobs, start=start, progress=lambda outcome: step(line(outcome))
            )
        self.stdout.write(f"{len(slugs) - len(failed)} of {tenants} restored.")
        if failed:
            sys.exit(1)

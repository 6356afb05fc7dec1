import sys
from argparse import ArgumentParser
from datetime import datetime, timedelta

from django.conf import settings
from django.utils.timezone import now

from tenants.backups import backup_sets
from tenants.backups.backup_locations import located
from tenants.management import terminal
from tenants.management.commands.backup_tenants import try_restores


class Command(terminal.OperatorCommand):
    help = (
        "Check the newest backup of all tenants by backup_tenants: it is signed, recent, complete and unaltered. Exit code 0: "
        "all is well; 1: it is not; 2: there is none, or its list is not ours. Example: check_backup /backups --test 3 "
        "--max-age 26"
    )
    after_interruption = terminal.STARTS_OVER
    allowed_while_fenced = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "folder",
            nargs="?",
            help="The folder or s3://bucket/prefix of the backups, or of a single one (default: BACKUP_FOLDER).",
        )
        parser.add_argument(
            "--test",
            type=terminal.at_least(0),
            default=0,
            metavar="NUMBER",
            help="Restore NUMBER tenants, chosen at random, into a copy that is dropped again (default 0).",
        )
        parser.add_argument("--max-age", type=terminal.at_least(1), metavar="HOURS", help="An older one is a problem.")

    def handle(self, *, folder: str | None, test: int, max_age: int | None, **_: object) -> None:
        with terminal.file_errors(folder or settings.BACKUP_FOLDER):
            storage = located(folder or settings.BACKUP_FOLDER)
            backup_set = backup_sets.newest(storage)
        tenants = terminal.counted(len(backup_set.tenants), "tenant")
        self.stdout.write(
            f"{backup_set.location} of {backup_set.started} has {tenants} and the global database ({backup_set.size:,} bytes)."
        )
        problems = list(backup_sets.find_problems(backup_set))
        if not backup_set.whole and backup_set.location.name != storage.itself().name:
            problems.append("There is no backup of all tenants: this one has only those that were named with --only.")
        if max_age is not None and datetime.fromisoformat(backup_set.started) < now() - timedelta(hours=max_age):
            problems.append(f"It is older than {terminal.counted(max_age, 'hour')}.")
        problems += try_restores(self, backup_set, test)
        if problems:
            self.stderr.write("\n".join(problems))
            sys.exit(1)
        self.stdout.write("No problems found.")

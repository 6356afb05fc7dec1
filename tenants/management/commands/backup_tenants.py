import secrets
import sys
from argparse import ArgumentParser

from django.conf import settings

from tenants.backups import backup_lists, backup_sets
from tenants.backups.backup_locations import located
from tenants.management import terminal


class Command(terminal.OperatorCommand):
    help = (
        "Back up all tenants and the global database into a new folder or bucket, encrypted, while they stay in use. One is "
        "then restored from it for a test. Keep ENCRYPTION_KEYS elsewhere: they open the backup. Exit code 0: complete; "
        "1: tenants are missing in it or the test failed; 2: nothing was written. Example: backup_tenants /backups --keep 14"
    )
    after_interruption = terminal.STARTS_OVER

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "folder", nargs="?", help="The folder for the new folder, or s3://bucket/prefix (default: BACKUP_FOLDER)."
        )
        terminal.add_jobs(parser)
        parser.add_argument("--only", metavar="SLUG", action="append", default=[], help="This tenant; can be repeated.")
        parser.add_argument(
            "--keep",
            type=terminal.at_least(1),
            metavar="NUMBER",
            help="Remove older backups than the newest NUMBER, but never the last one of a tenant (default: remove none).",
        )
        parser.add_argument(
            "--test",
            type=terminal.at_least(0),
            default=1,
            metavar="NUMBER",
            help="Restore NUMBER tenants, chosen at random, into a copy that is dropped again (default 1).",
        )

    def handle(
        self, *, folder: str | None, jobs: int, only: list[str], keep: int | None, test: int, **_: object
    ) -> None:
        with terminal.file_errors(folder or settings.BACKUP_FOLDER):
            parent = located(folder or settings.BACKUP_FOLDER)
            with terminal.progress(self.stdout, "Backing up tenants") as (start, step):
                made = backup_sets.write(parent, jobs=jobs, only=only, start=start, progress=lambda o: step(line(o)))
            tenants = terminal.counted(len(made.tenants), "tenant")
            self.stdout.write(f"{made.location} has {tenants} and the global database ({made.size:,} bytes).")
            failed = [f"{slug} is not in it: {reason}" for slug, reason in made.failed.items()]
            failed += try_restores(self, made, test)
            if keep is not None:
                for name in backup_sets.remove_old(parent, keep):
                    self.stdout.write(f"Removed {name}.")
        if failed:
            self.stderr.write("\n".join(failed))
            sys.exit(1)


def line(outcome: backup_sets.Outcome) -> str:
    """Describe one tenant's outcome."""
    return f"{outcome.slug} {f'failed ({outcome.reason})' if outcome.reason else 'done'} in {outcome.seconds:.2f} s"


def try_restores(command: terminal.OperatorCommand, backup_set: backup_lists.BackupSet, number: int) -> list[str]:
    """Restore some tenants of a set, chosen at random, into copies; return what failed."""
    failed, slugs = [], backup_sets.existing_tenants(backup_set)
    for slug in secrets.SystemRandom().sample(slugs, min(number, len(slugs))):
        outcome = backup_sets.try_restore(backup_set, slug)
        if outcome.reason:
            failed.append(f"{slug} could not be restored: {outcome.reason}")
        else:
            command.stdout.write(f"{slug} was restored into a copy with all its rows; the copy was dropped.")
    return failed

from argparse import ArgumentParser
from pathlib import Path

from identity_platform.transfer.files import reject_special
from tenants.backups import backup_lists, backup_sets
from tenants.backups.backup_locations import located
from tenants.management import terminal


class Command(terminal.OperatorCommand):
    help = (
        "Decrypt the global database of a backup of backup_tenants into a file for pg_restore. Needs ENCRYPTION_KEYS and no "
        "database. The file is not encrypted: remove it afterwards. Exit code 2: nothing was written. "
        "Example: extract_global_backup /backups/platform-20261123T020000Z global.dump"
    )
    after_interruption = terminal.STARTS_OVER
    allowed_while_fenced = True
    # The global database may be empty.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", help="The folder or s3://bucket/prefix of the backup.")
        parser.add_argument("file", type=Path, help="The file to write. An existing file is replaced at the end.")

    def handle(self, *, folder: str, file: Path, **_: object) -> None:
        path = file.resolve()
        with terminal.file_errors(path):
            reject_special(path)
            backup_sets.unseal_global_database(backup_lists.read(located(folder).itself()), path)
            self.stdout.write(f"The global database is in {path} ({path.stat().st_size} bytes).")

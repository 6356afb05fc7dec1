from argparse import ArgumentParser
from pathlib import Path

from tenants.jobs.relocation import restore_deleted_tenant
from tenants.management import terminal


class Command(terminal.OperatorCommand):
    help = (
        "Restore a deleted tenant from its final backup: users, admins, clients, services and settings. It comes back "
        "suspended; resume_tenant activates it. All users must sign in again. Possible until purge_expired has deleted the "
        "backup (DELETED_TENANT_BACKUP_DAYS). Exit code 2: nothing was changed. "
        "Example: restore_deleted_tenant /backups/deleted-6ef0e931-6aa1-47de-a094-76ddb1c05edb.backup"
    )
    after_interruption = terminal.STARTS_OVER

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="The file that delete_tenant printed.")
        parser.add_argument("--slug", help="Another slug, if the old one is in use.")
        parser.add_argument("--server", help="The database server (default: the one with most room).")

    def handle(self, *, file: Path, slug: str | None, server: str | None, **_: object) -> None:
        with terminal.file_errors(file.resolve()) as path:
            mapping = restore_deleted_tenant(file=path, slug=slug, server=server)
        name = mapping.tenant.slug
        self.stdout.write(
            f"{name} is {mapping.status} in {mapping.name} on {mapping.server.name}. Activate it: resume_tenant {name}"
        )

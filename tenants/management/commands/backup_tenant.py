from argparse import ArgumentParser
from pathlib import Path

from tenants.jobs.relocation import back_up_tenant
from tenants.lifecycle.queries import tenant_named
from tenants.management import terminal


class Command(terminal.TenantCommand):
    help = (
        "Write a consistent snapshot of a tenant's database into one encrypted file, while the tenant stays in use. Needs "
        "pg_dump of the server's version. The tenant's data key, which opens it, is in the global database: backup_tenants "
        "backs up both. Exit code 2: nothing was written. Example: backup_tenant acme /backups/acme.backup"
    )
    after_interruption = terminal.STARTS_OVER

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", type=Path, help="The file to write. An existing file is replaced at the end.")

    def handle(self, *, slug: str, file: Path, **_: object) -> None:
        with terminal.file_errors(file.resolve()) as path:
            back_up_tenant(tenant_id=tenant_named(slug).pk, file=path)
            self.stdout.write(f"{slug} is in {path} ({path.stat().st_size} bytes).")

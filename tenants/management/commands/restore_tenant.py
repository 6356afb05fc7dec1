from argparse import ArgumentParser
from pathlib import Path

from tenants.jobs.relocation import restore_tenant
from tenants.lifecycle.queries import tenant_named
from tenants.management import terminal


class Command(terminal.TenantCommand):
    help = (
        "Restore a tenant's database from a backup into a new database, then switch to it. Changes since the backup are "
        "lost. A failed tenant becomes active again. Exit code 2: nothing was changed. "
        "Example: restore_tenant acme /backups/acme.backup"
    )
    after_interruption = terminal.STARTS_OVER

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "file", type=Path, help="A file written by backup_tenant or backup_tenants for this tenant."
        )
        parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")

    def handle(self, *, slug: str, file: Path, yes: bool, **_: object) -> None:
        tenant = tenant_named(slug)
        terminal.confirm(self.stdout, f"Changes in {tenant.name} since this backup will be lost.", tenant.slug, yes=yes)
        mapping = restore_tenant(tenant_id=tenant.pk, file=file)
        self.stdout.write(f"{tenant.slug} is {mapping.status} in {mapping.name} on {mapping.server.name}.")

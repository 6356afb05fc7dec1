"""`restore_tenant`: a tenant's database back from a backup."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from identity_platform.api.errors import ApiError
from tenants.management import terminal
from tenants.queries import tenant_named
from tenants.relocation import restore_tenant


class Command(BaseCommand):
    help = (
        "Put a tenant's database back to what it was in a backup, into a new database, and switch to it. What has "
        "happened since the backup is gone. A failed tenant becomes active again. Exit code 2: everything is as it was. "
        "Example: restore_tenant acme /backups/acme.zip"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug", help="The tenant's short name (list_tenants shows it).")
        parser.add_argument("file", type=Path, help="A file of backup_tenant, of this very tenant.")
        parser.add_argument("--yes", action="store_true", help="Do not ask for the slug.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            tenant = tenant_named(options["slug"])
            question = f"What has happened in {tenant.name} since this backup will be lost."
            terminal.confirm(self.stdout, question, tenant.slug, yes=options["yes"])
            mapping = restore_tenant(tenant_id=tenant.pk, file=options["file"])
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        self.stdout.write(f"{tenant.slug} is {mapping.status} in {mapping.name} on {mapping.server.name}.")

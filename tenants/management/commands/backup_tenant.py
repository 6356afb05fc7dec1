"""`backup_tenant`: a tenant's database in one file."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from identity_platform.api.errors import ApiError
from tenants.management import terminal
from tenants.queries import tenant_named
from tenants.relocation import back_up_tenant


class Command(BaseCommand):
    help = (
        "Write a tenant's database into one file, as it is at one moment; its people go on working. Needs pg_dump of the "
        "server's version. Back up the global database and the encryption keys as well: sealed secrets open only with "
        "them. Exit code 2: nothing was written. Example: backup_tenant acme /backups/acme.zip"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug", help="The tenant's short name (list_tenants shows it).")
        parser.add_argument(
            "file", type=Path, help="Where to; a file of this name is replaced when the new one is whole."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        file: Path = options["file"].resolve()
        try:
            back_up_tenant(tenant_id=tenant_named(options["slug"]).pk, file=file)
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        except OSError as problem:
            raise CommandError(f"{file}: {problem.strerror}", returncode=terminal.NOT_TRIED) from problem
        self.stdout.write(f"{options['slug']} is in {file} ({file.stat().st_size} bytes).")

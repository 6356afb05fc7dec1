"""`restore_deleted_tenant`: a deleted tenant back from its final backup."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from identity_platform.api.errors import ApiError
from tenants.management import terminal
from tenants.relocation import restore_deleted_tenant


class Command(BaseCommand):
    help = (
        "Bring a deleted tenant back from its final backup: people, admins, clients, services and settings. It comes back "
        "suspended; resume_tenant opens it. Everybody signs in again. Possible until purge_expired has deleted the backup "
        "(DELETED_TENANT_BACKUP_DAYS). Exit code 2: everything is as it was. "
        "Example: restore_deleted_tenant /backups/deleted-6ef0e931-6aa1-47de-a094-76ddb1c05edb.backup"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="The file that delete_tenant has named.")
        parser.add_argument("--slug", help="Another short name, if the old one is in use.")
        parser.add_argument("--server", help="The database server (default: the one with most room).")

    def handle(self, *args: Any, **options: Any) -> None:
        file: Path = options["file"].resolve()
        try:
            mapping = restore_deleted_tenant(file=file, slug=options["slug"], server=options["server"])
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        except OSError as problem:
            raise CommandError(f"{file}: {problem.strerror}", returncode=terminal.NOT_TRIED) from problem
        slug = mapping.tenant.slug
        self.stdout.write(
            f"{slug} is {mapping.status} in {mapping.name} on {mapping.server.name}: resume_tenant {slug}."
        )

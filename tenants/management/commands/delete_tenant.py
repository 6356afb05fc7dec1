"""`delete_tenant`: a tenant, its database and everything of it, for good."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from identity_platform.api.errors import ApiError
from tenants.management import terminal
from tenants.provisioning import delete_tenant
from tenants.queries import tenant_named


class Command(BaseCommand):
    help = (
        "Delete a tenant with its database, its admins, clients and services. A final encrypted backup is written into "
        f"BACKUP_FOLDER first; for DELETED_TENANT_BACKUP_DAYS ({settings.DELETED_TENANT_BACKUP_DAYS}) "
        "restore_deleted_tenant can bring the tenant back from it. After that purge_expired deletes it with the key that "
        "opens it, and nothing brings the tenant back. A deletion that was interrupted is finished by running it again. "
        "Exit code 2: there is no such tenant, its state does not allow it, it was not confirmed, or the backup failed. "
        "Example: delete_tenant acme"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug", help="The tenant's short name (list_tenants shows it).")
        parser.add_argument(
            "--no-final-backup", action="store_true", help="Keep no backup: nothing brings the tenant back."
        )
        parser.add_argument("--yes", action="store_true", help="Do not ask for the slug.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            tenant = tenant_named(options["slug"])
            days = 0 if options["no_final_backup"] else settings.DELETED_TENANT_BACKUP_DAYS
            question = f"{tenant.name} and its database {tenant.database.name} will be deleted" + (
                f"; a final backup is kept for {terminal.counted(days, 'day')}."
                if days
                else " for good, without a backup."
            )
            terminal.confirm(self.stdout, question, tenant.slug, yes=options["yes"])
            kept = delete_tenant(tenant_id=tenant.pk, final_backup=not options["no_final_backup"])
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        self.stdout.write(f"{tenant.slug} is deleted.")
        if kept.until:
            self.stdout.write(
                f"Until {kept.until:%Y-%m-%d %H:%M} UTC this brings it back: restore_deleted_tenant {kept.file}"
            )
        else:
            self.stdout.write("There is no final backup of it.")

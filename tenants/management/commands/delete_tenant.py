from argparse import ArgumentParser

from django.conf import settings

from tenants.lifecycle.provisioning import delete_tenant
from tenants.lifecycle.queries import tenant_named
from tenants.management import terminal


class Command(terminal.TenantCommand):
    help = (
        "Delete a tenant with its database, admins, clients and services. First an encrypted final backup is written to "
        f"BACKUP_FOLDER; for DELETED_TENANT_BACKUP_DAYS ({settings.DELETED_TENANT_BACKUP_DAYS}) restore_deleted_tenant can "
        "restore the tenant from it. After that, purge_expired deletes the backup and its key, and the tenant cannot be "
        "restored. To finish an interrupted deletion, run the command again. Exit code 2: unknown tenant, its state does not "
        "allow it, not confirmed, or the backup failed. Example: delete_tenant acme"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--no-final-backup", action="store_true", help="Write no backup: the tenant cannot be restored."
        )
        parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")

    def handle(self, *, slug: str, no_final_backup: bool, yes: bool, **_: object) -> None:
        tenant = tenant_named(slug)
        days = 0 if no_final_backup else settings.DELETED_TENANT_BACKUP_DAYS
        backup = f"a final backup is kept for {terminal.counted(days, 'day')}" if days else "no backup is kept"
        question = f"{tenant.name} and its database {tenant.database.name} will be deleted; {backup}."
        terminal.confirm(self.stdout, question, tenant.slug, yes=yes)
        deletion = delete_tenant(tenant_id=tenant.pk, final_backup=not no_final_backup)
        self.stdout.write(f"{tenant.slug} is deleted.")
        if deletion.until:
            self.stdout.write(
                f"Until {deletion.until:%Y-%m-%d %H:%M} UTC it can be restored: restore_deleted_tenant {deletion.file}"
            )
        else:
            self.stdout.write("There is no final backup of it.")

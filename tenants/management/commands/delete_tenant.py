"""`delete_tenant`: a tenant, its database and everything of it, for good."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from identity_platform.api.errors import ApiError
from tenants.management import terminal
from tenants.provisioning import delete_tenant
from tenants.queries import tenant_named


class Command(BaseCommand):
    help = (
        "Delete a tenant with its database, its admins, clients and services, and the key that opens its secrets. Nothing "
        "brings it back: its backups open only with that key. A deletion that was interrupted is finished by running it "
        "again. Exit code 2: there is no such tenant, its state does not allow it, or it was not confirmed. "
        "Example: delete_tenant acme"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug", help="The tenant's short name (list_tenants shows it).")
        parser.add_argument("--yes", action="store_true", help="Do not ask for the slug.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            tenant = tenant_named(options["slug"])
            question = f"{tenant.name} and its database {tenant.database.name} will be deleted for good."
            terminal.confirm(self.stdout, question, tenant.slug, yes=options["yes"])
            delete_tenant(tenant_id=tenant.pk)
        except ApiError as refusal:
            raise CommandError(refusal.text, returncode=terminal.NOT_TRIED) from refusal
        self.stdout.write(f"{tenant.slug} is deleted.")

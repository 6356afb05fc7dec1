"""`move_tenant`: a tenant to another database server."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from identity_platform.api.errors import ApiError
from tenants.management import terminal
from tenants.queries import tenant_named
from tenants.relocation import move_tenant


class Command(BaseCommand):
    help = (
        "Copy a tenant's database to another server, compare the rows, switch to it and drop the old one. Its people can "
        "read meanwhile, but not write or sign in. A move that was interrupted is begun anew by running it again. Exit "
        "code 2: everything is as it was. Example: move_tenant acme db2"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug", help="The tenant's short name (list_tenants shows it).")
        parser.add_argument("server", help="The server's name (add_database_server).")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            mapping = move_tenant(tenant_id=tenant_named(options["slug"]).pk, server=options["server"])
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        self.stdout.write(f"{options['slug']} is on {mapping.server.name} in {mapping.name}.")

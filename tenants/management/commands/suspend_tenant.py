"""`suspend_tenant`: shut a tenant from the next request on."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from identity_platform.api.errors import ApiError
from tenants.management import terminal
from tenants.provisioning import suspend_tenant
from tenants.queries import tenant_named


class Command(BaseCommand):
    help = (
        "Suspend a tenant: from the next request on nobody of it gets in; its data stays and operators can look at it. "
        "Exit code 2: there is no such tenant, or its state does not allow it. Example: suspend_tenant acme"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug", help="The tenant's short name (list_tenants shows it).")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            suspend_tenant(tenant_id=tenant_named(options["slug"]).pk)
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        self.stdout.write(f"{options['slug']} is suspended.")

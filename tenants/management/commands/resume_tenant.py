"""`resume_tenant`: open a suspended tenant again."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from identity_platform.api.errors import ApiError
from tenants.management import terminal
from tenants.provisioning import resume_tenant
from tenants.queries import tenant_named


class Command(BaseCommand):
    help = (
        "Open a suspended tenant again, from the next request on. "
        "Exit code 2: there is no such tenant, or its state does not allow it. Example: resume_tenant acme"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug", help="The tenant's short name (list_tenants shows it).")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            resume_tenant(tenant_id=tenant_named(options["slug"]).pk)
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        self.stdout.write(f"{options['slug']} is active again.")

"""`export_services`: a tenant's services in a file, with secrets only on demand."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from identity_platform.api.errors import ApiError
from identity_platform.transfer.rows import JSONL
from registry.transfer.exporting import COLUMNS, export_services
from tenants.management import terminal, transfers


class Command(BaseCommand):
    help = (
        "Write a tenant's services as CSV or JSON lines; JSON lines also hold what there is to know of their credentials. "
        "Secrets are in it only with --with-secrets, which needs a FILE and a confirmation: move that file and destroy "
        "it. The export, and each secret in it, is written to the platform's audit trail. Exit code 2: nothing was "
        "written. Example: export_services acme services.jsonl"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        transfers.add_export_arguments(parser)
        parser.add_argument("--with-secrets", action="store_true", help="Open the credentials and write their secrets.")
        parser.add_argument("--yes", action="store_true", help="Do not ask.")

    def handle(self, *args: object, **options: Any) -> None:
        secrets = options["with_secrets"]
        if secrets:
            self._be_sure(options)
        transfers.export(
            self,
            options,
            COLUMNS,
            lambda tenant_id, form: export_services(tenant_id=tenant_id, credentials=form == JSONL, secrets=secrets),
            "services",
        )

    def _be_sure(self, options: dict[str, Any]) -> None:
        """Secrets go into a file of JSON lines that only its owner reads, never to a terminal or its scrollback."""
        try:
            fits = options["file"] is not None and transfers.form_of(options) == JSONL
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        if not fits:
            raise CommandError("--with-secrets needs a FILE of JSON lines.", returncode=terminal.NOT_TRIED)
        question = f"Every active secret of {options['tenant']} will stand in {options['file']}, readable."
        terminal.confirm(self.stdout, question, options["tenant"], yes=options["yes"])

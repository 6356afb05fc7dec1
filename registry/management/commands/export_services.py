from argparse import ArgumentParser
from functools import partial
from pathlib import Path

from django.core.management.base import CommandError

from identity_platform.transfer.rows import JSONL
from registry.transfer.exporting import COLUMNS, export_services
from tenants.management import terminal
from tenants.management.transfers import ExportCommand, form_of


class Command(ExportCommand):
    help = (
        "Write a tenant's services as CSV or JSON lines; JSON lines also contain their credentials. Secrets are included only "
        "with --with-secrets, which needs a FILE and a confirmation: destroy that file after use. The export and each "
        "exported secret are recorded in the platform's audit log. Exit code 2: nothing was written. "
        "Example: export_services acme services.jsonl"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--with-secrets", action="store_true", help="Decrypt the credentials and write their secrets."
        )
        parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")

    def handle(
        self, *, tenant: str, file: Path | None, format: str | None, with_secrets: bool, yes: bool, **_: object
    ) -> None:
        form = form_of(file, format)
        if with_secrets:
            # Only into a file that its owner alone can read, never to a terminal or its scrollback.
            if file is None or form != JSONL:
                raise CommandError("--with-secrets needs a FILE of JSON lines.", returncode=terminal.NOT_TRIED)
            question = f"Every active secret of {tenant} will be readable in {file}."
            terminal.confirm(self.stdout, question, tenant, yes=yes)
        rows = partial(export_services, credentials=form == JSONL, secrets=with_secrets)
        self.export(
            tenant, file, form, columns=COLUMNS, rows=lambda tenant_id: rows(tenant_id=tenant_id), what="services"
        )

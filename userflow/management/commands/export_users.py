from argparse import ArgumentParser
from functools import partial
from pathlib import Path

from identity_platform.transfer.rows import JSONL
from tenants.management.transfers import ExportCommand, form_of
from userflow.mail_delivery import background
from userflow.transfer.exporting import COLUMNS, export_end_users


class Command(ExportCommand):
    help = (
        "Write a tenant's end users with their password hashes, groups and roles as CSV or JSON lines, from one "
        "snapshot. JSON lines also contain the roles and groups, so that import_users --create-missing creates them. "
        "Sessions and secrets of second factors are never exported. The export is recorded in the platform's audit log, "
        "and the tenant's admins are notified by mail if it contains password hashes. "
        "Exit code 2: nothing was written. Example: export_users acme people.jsonl"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--without-hashes", action="store_true", help="Leave the password hashes out.")

    def handle(self, *, tenant: str, file: Path | None, format: str | None, without_hashes: bool, **_: object) -> None:
        form = form_of(file, format)
        columns = [column for column in COLUMNS if not (without_hashes and column == "password_hash")]
        rows = partial(export_end_users, hashes=not without_hashes, definitions=form == JSONL)
        try:
            self.export(
                tenant, file, form, columns=columns, rows=lambda tenant_id: rows(tenant_id=tenant_id), what="end users"
            )
        finally:
            background.settle()

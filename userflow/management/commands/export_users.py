"""`export_users`: export a tenant's end users with password hashes to a file."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand

from identity_platform.transfer.rows import JSONL
from tenants.management import transfers
from userflow import mail
from userflow.transfer.exporting import COLUMNS, export_end_users


class Command(BaseCommand):
    help = (
        "Write a tenant's end users with their password hashes, groups and roles as CSV or JSON lines, from one "
        "snapshot. JSON lines also contain the roles and groups, so that import_users --create-missing creates them. "
        "Sessions and secrets of second factors are never exported. The export is recorded in the platform's audit log, "
        "and the tenant's admins are notified by mail if it contains password hashes. "
        "Exit code 2: nothing was written. Example: export_users acme people.jsonl"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        transfers.add_export_arguments(parser)
        parser.add_argument("--without-hashes", action="store_true", help="Leave the password hashes out.")

    def handle(self, *args: object, **options: object) -> None:
        hashes = not options["without_hashes"]
        try:
            transfers.export(
                self,
                options,
                [column for column in COLUMNS if hashes or column != "password_hash"],
                lambda tenant_id, form: export_end_users(tenant_id=tenant_id, hashes=hashes, definitions=form == JSONL),
                "end users",
            )
        finally:
            mail.settle()

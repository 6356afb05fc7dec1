"""`import_users`: end users of a file into a tenant."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from identity_platform.transfer.report import Report, Tally
from tenants.management.transfers import ImportCommand
from userflow.transfer.actions import import_end_users


class Command(ImportCommand):
    help = (
        "Bring end users from CSV or JSON lines into a tenant, with password hashes (bcrypt, scrypt, PBKDF2, argon2), groups "
        "and roles. Members: email, and if wanted name, active, provider, password_hash, metadata, groups, roles, "
        "client_id, email_verified, created_at, last_login, id. A bad row stays out and stands in the report, the others "
        "come in. A killed import goes on where it was when the same command is run again. Exit code 0: all rows are in; "
        "1: some are not; 2: nothing was tried. Example: import_users acme people.csv --dry-run --report bad.csv"
    )
    what = "rows"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--create-missing", action="store_true", help="Make roles and groups that rows name and that are missing."
        )
        parser.add_argument(
            "--default-client",
            action="store_true",
            help="Users of clients that this tenant does not have get its default client.",
        )

    def bring_in(self, stated: Mapping[str, Any], **how: Any) -> tuple[Tally, Report]:
        return import_end_users(**how, default_client=stated["default_client"])

from argparse import ArgumentParser
from collections.abc import Mapping
from functools import partial

from tenants.management.transfers import ImportCommand, Importer
from userflow.transfer.actions import import_end_users


class Command(ImportCommand):
    help = (
        "Import end users from CSV or JSON lines into a tenant, with password hashes (bcrypt, scrypt, PBKDF2, argon2), groups "
        "and roles. Fields: email, and optionally name, active, provider, password_hash, external_id, metadata, "
        "app_metadata, groups, roles, client_id, email_verified, created_at, last_login, id. Invalid rows are skipped and "
        "listed in the report. Run the same command again to continue an interrupted import. Exit code 0: all rows were "
        "imported; 1: some were not; 2: nothing was tried. Example: import_users acme people.csv --dry-run --report bad.csv"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--create-missing", action="store_true", help="Create missing roles and groups.")
        parser.add_argument(
            "--default-client", action="store_true", help="Assign users of unknown clients to the default client."
        )

    def importer(self, options: Mapping[str, object]) -> Importer:
        return partial(import_end_users, default_client=bool(options["default_client"]))

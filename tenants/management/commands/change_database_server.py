"""`change_database_server`: how many tenants a server takes."""

from argparse import ArgumentParser, BooleanOptionalAction
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from identity_platform.api.errors import ApiError
from tenants.capacity import change_database_server
from tenants.management import terminal


class Command(BaseCommand):
    help = (
        "Change how many tenants a database server takes, or whether it takes new ones at all; those it has stay. "
        "Without an option it only says what it takes. The server of the global database is called main. Exit code 2: there "
        "is no such server. Example: change_database_server main --capacity 20000 --no-accepts"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="The server's name.")
        parser.add_argument("--capacity", type=int, help="Tenants it takes at most.")
        parser.add_argument(
            "--accepts", action=BooleanOptionalAction, default=None, help="Whether it takes new tenants."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["capacity"] is not None and options["capacity"] < 0:
            raise CommandError("--capacity must not be negative.", returncode=terminal.NOT_TRIED)
        try:
            server = change_database_server(
                name=options["name"], capacity=options["capacity"], accepts=options["accepts"]
            )
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        takes = f"takes up to {server.capacity} tenants" if server.accepts_tenants else "takes no new tenants"
        self.stdout.write(f"{server.name} {takes}.")

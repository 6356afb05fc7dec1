"""`add_database_server`: one more server for tenants."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from identity_platform.api.errors import ApiError
from tenants.capacity import add_database_server
from tenants.databases import ensure_template
from tenants.management import terminal


class Command(BaseCommand):
    help = (
        "Add a PostgreSQL server that takes tenants: try it, store its URLs sealed, make its template database. New "
        "tenants go to the server with most room. Exit code 2: the server is not fit, or the name is taken. "
        "Example: echo postgresql://identity:secret@db2.example:5432/ | add_database_server db2 -"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="What mappings and commands call the server.")
        parser.add_argument(
            "url", help="Where tenants connect to; `-` reads it from standard input, out of sight of other users."
        )
        parser.add_argument(
            "--admin-url",
            help="Straight to the server, where the URL leads through a pooler. With --replace it stays unless it is "
            'given; "" removes it.',
        )
        parser.add_argument(
            "--capacity", type=int, help="Tenants it takes at most (default 1000; with --replace it stays)."
        )
        parser.add_argument(
            "--replace",
            action="store_true",
            help="Give a known server a new URL. What is not stated (capacity, --admin-url, --no-accepts) stays.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["capacity"] is not None and options["capacity"] < 0:
            raise CommandError("--capacity must not be negative.", returncode=terminal.NOT_TRIED)
        try:
            server = add_database_server(
                name=options["name"],
                url=sys.stdin.readline().strip() if options["url"] == "-" else options["url"],
                admin_url=options["admin_url"],
                capacity=options["capacity"],
                replace=options["replace"],
            )
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        template = ensure_template(server)
        self.stdout.write(f"{server.name} at {server.host} takes up to {server.capacity} tenants; template {template}.")

import sys
from argparse import ArgumentParser

from tenants.copies.databases import ensure_template
from tenants.lifecycle.capacity import add_database_server
from tenants.management import terminal


class Command(terminal.OperatorCommand):
    help = (
        "Add a PostgreSQL server for tenants: check it, store its URLs sealed, create its template database. New tenants go "
        "to the server with most room. Exit code 2: the server does not meet the requirements, or the name is taken. "
        "Example: echo postgresql://identity:secret@db2.example:5432/ | add_database_server db2 -"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="A name for the server.")
        parser.add_argument(
            "url",
            help="The URL tenants connect to. `-` reads it from standard input, so that it is not in the process list.",
        )
        parser.add_argument(
            "--admin-url",
            help="A URL that bypasses the pooler in front of the server. With --replace it stays unless given; "
            '"" removes it.',
        )
        parser.add_argument(
            "--capacity",
            type=terminal.at_least(0),
            help="Maximum number of tenants (default 1000; with --replace it stays).",
        )
        parser.add_argument(
            "--region",
            type=terminal.region,
            help="Where its machines are, such as eu: tenants that are bound to it can be there.",
        )
        parser.add_argument(
            "--labels",
            type=terminal.labels,
            metavar="LABEL,LABEL",
            help="What else tells it from others, such as ssd: create_tenant can ask for it.",
        )
        parser.add_argument(
            "--replace",
            action="store_true",
            help="Give an existing server a new URL. Options that are not given keep their value.",
        )

    def handle(
        self,
        *,
        name: str,
        url: str,
        admin_url: str | None,
        capacity: int | None,
        region: str | None,
        labels: list[str] | None,
        replace: bool,
        **_: object,
    ) -> None:
        server = add_database_server(
            name=name,
            url=sys.stdin.readline().strip() if url == "-" else url,
            admin_url=admin_url,
            capacity=capacity,
            region=region,
            labels=labels,
            replace=replace,
        )
        template = ensure_template(server)
        self.stdout.write(f"{server.name} at {server.host} takes up to {server.capacity} tenants; template {template}.")

from argparse import ArgumentParser, BooleanOptionalAction

from tenants.lifecycle.capacity import change_database_server
from tenants.management import terminal


class Command(terminal.OperatorCommand):
    help = (
        "Change how many tenants a database server takes, whether it accepts new ones, its region or labels; existing tenants "
        "stay. "
        "Without an option the command prints the current values. The server of the global database is named main. Exit code "
        "2: unknown server, or a tenant on it is bound to another region. "
        "Example: change_database_server main --capacity 20000 --no-accepts"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="The server's name.")
        parser.add_argument("--capacity", type=terminal.at_least(0), help="Maximum number of tenants.")
        parser.add_argument(
            "--accepts", action=BooleanOptionalAction, default=None, help="Whether it accepts new tenants."
        )
        parser.add_argument(
            "--region", type=terminal.region, help='Where its machines are, such as eu; "" if that is not stated.'
        )
        parser.add_argument(
            "--labels",
            type=terminal.labels,
            metavar="LABEL,LABEL",
            help='What else tells it from others, in place of its present labels; "" for none.',
        )

    def handle(
        self,
        *,
        name: str,
        capacity: int | None,
        accepts: bool | None,
        region: str | None,
        labels: list[str] | None,
        **_: object,
    ) -> None:
        server = change_database_server(name=name, capacity=capacity, accepts=accepts, region=region, labels=labels)
        takes = f"takes up to {server.capacity} tenants" if server.accepts_tenants else "accepts no new tenants"
        where = f" It is in the region {server.region}." if server.region else ""
        which = f" Labels: {', '.join(server.labels)}." if server.labels else ""
        self.stdout.write(f"{server.name} {takes}.{where}{which}")

from argparse import ArgumentParser

from tenants.management import terminal
from tenants.queries import tenant_named
from tenants.relocation import move_tenant


class Command(terminal.TenantCommand):
    help = (
        "Copy a tenant's database to another server, compare the row counts, switch to it and drop the old one. During the "
        "move its data can be read, but writes and sign-ins are rejected. To finish an interrupted move, run the command "
        "again. Exit code 2: nothing was changed. Example: move_tenant acme db2"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("server", help="The server's name (see add_database_server).")

    def handle(self, *, slug: str, server: str, **_: object) -> None:
        mapping = move_tenant(tenant_id=tenant_named(slug).pk, server=server)
        self.stdout.write(f"{slug} is on {mapping.server.name} in {mapping.name}.")

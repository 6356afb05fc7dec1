from argparse import ArgumentParser

from tenants.jobs.moves import PAUSE_SECONDS, move_tenant, plan_move
from tenants.lifecycle.queries import tenant_named
from tenants.management import terminal


class Command(terminal.TenantCommand):
    help = (
        "Copy a tenant's database to another server, compare the tables, switch to it and drop the old one. The tenant stays "
        "in use, and writes are rejected for about a second, if both servers allow logical replication; otherwise the reason "
        "is printed, and its data can be read but not written during the whole move. To finish an interrupted move, run the "
        "command again. Exit code 2: nothing was changed. Example: move_tenant acme db2"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("server", help="The server's name (see add_database_server).")
        parser.add_argument(
            "--offline", action="store_true", help="Dump and restore, read-only meanwhile, in any case."
        )
        parser.add_argument(
            "--pause",
            type=terminal.at_least(1),
            default=int(PAUSE_SECONDS),
            help="Reject writes for at most so many seconds in a row, then accept them again and retry later (%(default)s).",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="Only say how the tenant would be moved, and why not online."
        )

    def handle(self, *, slug: str, server: str, offline: bool, pause: int, dry_run: bool, **_: object) -> None:
        tenant_id = tenant_named(slug).pk
        if dry_run:
            plan = plan_move(tenant_id=tenant_id, server=server)
            online = not offline and not plan.obstacles
            way = "online" if online else "by dump and restore, read-only meanwhile"
            self.stdout.write(f"{slug} would be moved from {plan.source} to {plan.target} {way}. Nothing was changed.")
            for obstacle in plan.obstacles:
                self.stdout.write(obstacle)
            return
        mapping = move_tenant(
            tenant_id=tenant_id, server=server, offline=offline, pause=pause, progress=self.stdout.write
        )
        self.stdout.write(f"{slug} is on {mapping.server.name} in {mapping.name}.")

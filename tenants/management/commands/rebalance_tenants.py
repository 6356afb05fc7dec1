import sys
from argparse import ArgumentParser

from tenants.jobs import rebalancing
from tenants.management import terminal


class Command(terminal.OperatorCommand):
    help = (
        "List the moves after which the database servers of each region are equally full in relation to their capacity; with "
        "--apply, make them, one at a time, each like move_tenant. No tenant changes its region or labels. Exit code 0: "
        "done, or listed; 1: some moves failed, and those tenants are where they were; 2: unknown server. "
        "Example: rebalance_tenants --drain db1 --apply"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--drain",
            metavar="SERVER",
            action="append",
            default=[],
            help="Move all tenants of this server to others, for example before it is removed; can be repeated. New tenants go "
            "there until `change_database_server SERVER --no-accepts`.",
        )
        parser.add_argument("--limit", type=terminal.at_least(1), help="Make only so many moves.")
        parser.add_argument("--apply", action="store_true", help="Make the moves. Without it they are only listed.")
        parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")

    def handle(self, *, drain: list[str], limit: int | None, apply: bool, yes: bool, **_: object) -> None:
        planned_moves = rebalancing.plan(drain=drain)[:limit]
        count = terminal.counted(len(planned_moves), "move")
        if not planned_moves:
            self.stdout.write("No move is needed.")
            return
        if not apply:
            rows = [(move.slug, move.source, move.target or move.obstacle) for move in planned_moves]
            terminal.table(self.stdout, ("tenant", "from", "to"), rows)
            self.stdout.write(f"{count}. Nothing was changed: --apply makes them.")
            return
        terminal.confirm(self.stdout, f"{count}; online where possible, else read-only meanwhile.", "move", yes=yes)
        with terminal.progress(self.stdout, "Moving tenants") as (start, step):
            start(len(planned_moves))
            failed = rebalancing.apply(planned_moves, lambda move, reason: step(_line(move, reason)))
        self.stdout.write(f"{len(planned_moves) - failed} of {terminal.counted(len(planned_moves), 'tenant')} moved.")
        if failed:
            sys.exit(1)


def _line(move: rebalancing.Move, reason: str) -> str:
    return f"{move.slug} stays on {move.source}: {reason}" if reason else f"{move.slug} is on {move.target}"

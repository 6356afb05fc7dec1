from argparse import ArgumentParser
from json import dumps

from tenants.lifecycle.queries import TenantRecord, listed
from tenants.management import terminal
from tenants.states import State


class Command(terminal.OperatorCommand):
    help = (
        "List the tenants: slug, id, state, server, database, schema, and why the last step failed. "
        "Example: list_tenants --status suspended --json"
    )
    allowed_while_fenced = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        states = [state.value for state in State if state is not State.DELETED]
        parser.add_argument("--status", choices=states, help="Only tenants in this state.")
        parser.add_argument("--json", action="store_true", help="Print one JSON list.")

    def handle(self, *, status: str | None, json: bool, **_: object) -> None:
        rows = listed(status=status)
        if json:
            self.stdout.write(dumps(rows))
            return
        columns = ("slug", "tenant_id", "status", "server", "database", "schema", "reason")
        terminal.table(self.stdout, columns, [_cells(row) for row in rows])


def _cells(row: TenantRecord) -> tuple[str, ...]:
    schema = "current" if row["current"] else row["schema_version"] or "-"
    return row["slug"], row["tenant_id"], row["status"], row["server"], row["database"], schema, row["reason"]

"""`list_tenants`: all tenants with their state."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from tenants.management import terminal
from tenants.queries import listed
from tenants.states import State


class Command(BaseCommand):
    help = (
        "List the tenants: slug, id, state, server, database, schema, and why the last step failed. "
        "Example: list_tenants --status suspended --json"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        states = [state.value for state in State if state is not State.DELETED]
        parser.add_argument("--status", choices=states, help="Only tenants in this state.")
        parser.add_argument("--json", action="store_true", help="Print one JSON list.")

    def handle(self, *args: Any, **options: Any) -> None:
        rows = listed(status=options["status"])
        if options["json"]:
            self.stdout.write(json.dumps(rows))
            return
        columns = ("slug", "tenant_id", "status", "server", "database", "schema", "reason")
        shown = [[row[name] for name in columns[:5]] + [_schema(row), row["reason"]] for row in rows]
        terminal.table(self.stdout, columns, shown)


def _schema(row: dict[str, Any]) -> str:
    return "current" if row["current"] else row["schema_version"] or "-"

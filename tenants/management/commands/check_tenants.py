"""`check_tenants`: what is wrong with the tenants' databases, and its repair."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from tenants import repairs
from tenants.management import terminal


class Command(BaseCommand):
    help = (
        "Find tenants that a crash left half made, migrating, moving or half deleted, tenants whose database is missing, "
        "databases that belong to nobody or that an interrupted DROP DATABASE left invalid, old templates, broken spares, "
        "and passkey domains that two tenants use. Whatever one repair meets, the others go on. Exit code 0: nothing is "
        "wrong; 1: something "
        "is, or still is after the repair. Example: check_tenants --repair"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--repair", action="store_true", help="Put right what can be, without losing data.")
        parser.add_argument(
            "--drop-orphans", action="store_true", help="Also drop databases that belong to no tenant (asks)."
        )
        parser.add_argument("--yes", action="store_true", help="Do not ask.")

    def handle(self, *args: Any, **options: Any) -> None:
        found = repairs.find_problems()
        if found and (options["repair"] or options["drop_orphans"]):
            self._show(found)
            self._repair(found, **options)
            found = repairs.find_problems()
        if not found:
            self.stdout.write("Nothing is wrong.")
            return
        self._show(found)
        sys.exit(1)

    def _repair(self, found: list[repairs.Finding], **options: Any) -> None:
        orphans = [finding for finding in found if finding.destroys and options["drop_orphans"]]
        harmless = [finding for finding in found if finding.repair and not finding.destroys and options["repair"]]
        if orphans:
            number = terminal.counted(len(orphans), "orphan database")
            question = (
                f"{number} will be dropped for good. Was the global database restored? Then it may be a tenant's."
            )
            terminal.confirm(self.stdout, question, "drop", yes=options["yes"])
        if harmless:
            question = f"To be repaired: {terminal.counted(len(harmless), 'finding')}."
            terminal.confirm(self.stdout, question, "repair", yes=options["yes"])
        with terminal.progress(self.stdout, "Repairing") as (begun, step):
            begun(len(orphans) + len(harmless))
            for finding in [*harmless, *orphans]:
                step(f"{finding.subject}: {repairs.repair(finding) or 'done'}")

    def _show(self, found: list[repairs.Finding]) -> None:
        rows = [(finding.kind, finding.server.name, finding.subject, finding.says) for finding in found]
        terminal.table(self.stdout, ("what", "server", "tenant or database", "more"), rows)

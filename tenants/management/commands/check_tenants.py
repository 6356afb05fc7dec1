import sys
from argparse import ArgumentParser

from tenants.consistency import repairs
from tenants.database_servers import fences
from tenants.management import terminal


class Command(terminal.OperatorCommand):
    help = (
        "Find tenants whose provisioning, migration, move or deletion was interrupted, tenants without a database, databases "
        "without a tenant or left invalid by an interrupted DROP DATABASE, old templates, broken spare databases, passkey "
        "domains that two tenants use, and tenants that have not recorded what has become of their domains. One failing repair "
        "does not stop the others. Exit code 0: no problems; 1: there are problems, or some remain after the repair. "
        "Example: check_tenants --repair"
    )
    allowed_while_fenced = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--repair", action="store_true", help="Repair what can be repaired without losing data.")
        parser.add_argument(
            "--drop-orphans",
            action="store_true",
            help="Also drop databases without a tenant (asks first), except those that an unknown or living tenant may need.",
        )
        parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")

    def handle(self, *, repair: bool, drop_orphans: bool, yes: bool, **_: object) -> None:
        if repair or drop_orphans:
            fences.require()
        findings = repairs.find_problems()
        safe = [finding for finding in findings if repair and finding.repair and not finding.drops_data]
        orphans = [finding for finding in findings if drop_orphans and finding.repair and finding.drops_data]
        if findings and (repair or drop_orphans):
            self._show(findings)
            self._repair(safe, orphans, yes=yes)
            findings = repairs.find_problems()
        if not findings:
            self.stdout.write("No problems found.")
            return
        self._show(findings)
        sys.exit(1)

    def _repair(self, safe: list[repairs.Finding], orphans: list[repairs.Finding], *, yes: bool) -> None:
        if orphans:
            question = (
                f"{terminal.counted(len(orphans), 'orphan database')} will be dropped permanently. If the global database "
                "was restored from a backup, they may belong to tenants."
            )
            terminal.confirm(self.stdout, question, "drop", yes=yes)
        if safe:
            question = f"{terminal.counted(len(safe), 'problem')} will be repaired."
            terminal.confirm(self.stdout, question, "repair", yes=yes)
        with terminal.progress(self.stdout, "Repairing") as (start, step):
            start(len(orphans) + len(safe))
            for finding in [*safe, *orphans]:
                step(f"{finding.subject}: {repairs.repair(finding) or 'done'}")

    def _show(self, findings: list[repairs.Finding]) -> None:
        rows = [(finding.kind, finding.server.name, finding.subject, finding.message) for finding in findings]
        terminal.table(self.stdout, ("problem", "server", "tenant or database", "details"), rows)

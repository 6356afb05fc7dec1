import sys
from argparse import ArgumentParser

from tenants.entering.schema import schema_version
from tenants.jobs import fleet
from tenants.management import terminal


class Command(terminal.OperatorCommand):
    help = (
        "Migrate all tenant databases that are behind: one tenant first as a canary, then in parallel on each server. A tenant "
        "that fails is rolled back and does not stop the others; another run tries only the remaining ones. Exit code 0: all "
        "are current; 1: some are not. Example: migrate_tenants --jobs 4"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        terminal.add_jobs(parser)
        parser.add_argument("--only", metavar="SLUG", action="append", default=[], help="This tenant; can be repeated.")
        parser.add_argument("--dry-run", action="store_true", help="List the tenants that are behind, change nothing.")

    def handle(self, *, jobs: int, only: list[str], dry_run: bool, **_: object) -> None:
        self._list(only) if dry_run else self._migrate(jobs, only)

    def _list(self, only: list[str]) -> None:
        behind = fleet.tenants_behind(only)
        rows = [(m.tenant.slug, m.server.name, m.status, m.schema_version or "-", m.reason) for m in behind]
        terminal.table(self.stdout, ("tenant", "server", "status", "schema", "last failure"), rows)
        self.stdout.write(f"{terminal.counted(len(behind), 'tenant')} behind {schema_version()}. Nothing was changed.")

    def _migrate(self, jobs: int, only: list[str]) -> None:
        with terminal.progress(self.stdout, "Migrating tenants") as (start, step):
            report = fleet.migrate_tenants(jobs=jobs, only=only, start=start, progress=lambda o: step(_line(o)))
        migrated, skipped = report.count(fleet.Result.MIGRATED), report.count(fleet.Result.SKIPPED)
        self.stdout.write(f"{migrated} migrated, {skipped} skipped, {len(report.failed)} failed.")
        if report.failed:
            rows = [(outcome.slug, outcome.server, outcome.reason) for outcome in report.failed]
            terminal.table(self.stdout, ("failed tenant", "server", "reason"), rows)
        if report.not_tried:
            self.stdout.write(f"The canary failed: {terminal.counted(report.not_tried, 'tenant')} not tried.")
        if report.failed:
            sys.exit(1)


def _line(outcome: fleet.Outcome) -> str:
    reason = f" ({outcome.reason})" if outcome.reason else ""
    return f"{outcome.slug} {outcome.result} in {outcome.seconds:.2f} s{reason}"

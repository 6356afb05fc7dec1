"""`migrate_tenants`: every tenant's database to this release's schema."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from identity_platform.api.errors import ApiError
from tenants import fleet
from tenants.management import terminal
from tenants.schema import schema_version


class Command(BaseCommand):
    help = (
        "Migrate the databases of all tenants that are behind: a canary first, then in parallel on each server. A tenant "
        "that fails stays as it was and stops nobody; run it again and only what is left is tried. Exit code 0: all are "
        "current; 1: some are not. Example: migrate_tenants --jobs 4"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--jobs", type=int, default=2, help="Tenants at a time on each server (default 2).")
        parser.add_argument("--only", metavar="SLUG", action="append", default=[], help="This tenant; may be repeated.")
        parser.add_argument("--dry-run", action="store_true", help="List the tenants that are behind, change nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["jobs"] < 1:
            raise CommandError("--jobs must be at least 1.", returncode=terminal.NOT_TRIED)
        try:
            self._list(options["only"]) if options["dry_run"] else self._migrate(options["jobs"], options["only"])
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error

    def _list(self, only: list[str]) -> None:
        behind = fleet.tenants_behind(only)
        rows = [(m.tenant.slug, m.server.name, m.status, m.schema_version or "-", m.reason) for m in behind]
        terminal.table(self.stdout, ("tenant", "server", "status", "schema", "last failure"), rows)
        self.stdout.write(f"{terminal.counted(len(behind), 'tenant')} behind {schema_version()}. Nothing was changed.")

    def _migrate(self, jobs: int, only: list[str]) -> None:
        try:
            with terminal.progress(self.stdout, "Migrating tenants") as (begun, step):
                report = fleet.migrate_tenants(jobs=jobs, only=only, begun=begun, progress=lambda o: step(_line(o)))
        except KeyboardInterrupt:
            raise CommandError("Interrupted: run it again to go on.", returncode=terminal.INTERRUPTED) from None
        migrated, passed = report.count(fleet.Result.MIGRATED), report.count(fleet.Result.PASSED)
        self.stdout.write(f"{migrated} migrated, {passed} passed over, {len(report.failed)} failed.")
        if report.failed:
            rows = [(outcome.slug, outcome.server, outcome.reason) for outcome in report.failed]
            terminal.table(self.stdout, ("failed tenant", "server", "reason"), rows)
        if report.spared:
            self.stdout.write(f"The canary failed: {terminal.counted(report.spared, 'tenant')} not tried.")
        if report.failed:
            sys.exit(1)


def _line(outcome: fleet.Outcome) -> str:
    reason = f" ({outcome.reason})" if outcome.reason else ""
    return f"{outcome.slug} {outcome.result} in {outcome.seconds:.2f} s{reason}"

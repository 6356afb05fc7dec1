"""`doctor`: examine the installation and write a report for those who look for the cause of a problem."""

import sys
from argparse import ArgumentParser
from pathlib import Path

from django.utils.timezone import now

from console.support_bundle import report
from tenants.management import terminal


class Command(terminal.OperatorCommand):
    help = (
        "Examine the installation and write a report: versions, settings, checks, health of databases and cache, tenants, "
        "sizes, tasks, last failures. It contains names of hosts, folders and tenants, and no passwords, keys or tokens; read "
        "it before you send it. What cannot be read is named in it. Exit code 0: healthy; 1: there are problems; 2: the file "
        "cannot be written. Example: doctor --output report.json"
    )
    after_interruption = terminal.STARTS_OVER
    # It changes nothing, and has to work where a check fails.
    allowed_while_fenced = True
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--output",
            metavar="FILE",
            help="A new file, or - for standard output (default: identity-doctor-TIME.json in this folder).",
        )
        parser.add_argument(
            "--skip-tenants", action="store_true", help="Do not open every tenant's database, as check_tenants does."
        )

    def handle(self, *, output: str | None, skip_tenants: bool, **_: object) -> None:
        collected = report.collect(skip_tenants=skip_tenants)
        summary = "\n".join(report.as_text(collected))
        if output == "-":
            self.stderr.write(summary)
            self.stdout.write(report.as_json(collected))
        else:
            file = Path(output or f"identity-doctor-{now():%Y%m%d-%H%M%S}.json")
            with terminal.file_errors(file):
                report.write(collected, file)
            self.stdout.write(summary)
            self.stdout.write(f"The report is in {file}, readable by this user only. Read it before you send it.")
        if not report.is_healthy(collected):
            sys.exit(1)

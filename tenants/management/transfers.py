"""Base classes of the commands that import and export: the same options, reports and exit codes for all."""

import errno
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol, cast
from uuid import UUID

from django.core.management.base import CommandError

from identity_platform.transfer.errors import FileUnusable
from identity_platform.transfer.files import RowWriter, output_stream, reject_special
from identity_platform.transfer.report import COLUMNS, Report, ReportFile, Tally
from identity_platform.transfer.rows import FORMATS, JSONL, format_of, size_of
from identity_platform.transfer.runs import FAIL, ON_CONFLICT, Options
from tenants.lifecycle.queries import tenant_named
from tenants.management import terminal

LARGEST_BATCH = 5000
# Some rows were rejected; the report says which and why.
SOME_REJECTED = 1


class Importer(Protocol):
    def __call__(
        self,
        *,
        tenant_id: UUID,
        stream: IO[bytes],
        form: str,
        options: Options,
        open_report: Callable[[int], Report],
        seen: Callable[[Tally, int], None],
    ) -> tuple[Tally, Report]: ...


class ImportCommand(terminal.OperatorCommand):
    """Import a file into a tenant, show the progress and the report. A command names its action in `importer`."""

    def importer(self, options: Mapping[str, object]) -> Importer:
        raise NotImplementedError

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="The tenant's slug (see list_tenants).")
        parser.add_argument("file", metavar="FILE", type=Path, help="The file to import, in UTF-8.")
        parser.add_argument("--format", choices=FORMATS, help="csv or jsonl (default: by the file's name).")
        parser.add_argument("--dry-run", action="store_true", help="Check everything, change nothing.")
        parser.add_argument(
            "--on-conflict",
            choices=ON_CONFLICT,
            default=FAIL,
            help="What to do with rows that exist already: fail (list them in the report; default), skip or update.",
        )
        parser.add_argument(
            "--report",
            type=Path,
            metavar="FILE",
            help="Write line, field and reason of every rejected row to this .csv or .jsonl file.",
        )
        parser.add_argument(
            "--batch-size",
            type=int,
            default=2000,
            help=f"Rows in one transaction (default 2000; 1 to {LARGEST_BATCH}).",
        )
        again = parser.add_mutually_exclusive_group()
        again.add_argument(
            "--resume",
            action="store_true",
            help="Continue an interrupted import of this file at once, also if its process still runs. Without this option "
            "it is continued once that process has been silent for 30 seconds.",
        )
        again.add_argument(
            "--restart", action="store_true", help="Ignore an interrupted import and begin with the first row."
        )

    def handle(
        self,
        *,
        tenant: str,
        file: Path,
        format: str | None,
        report: Path | None,
        dry_run: bool,
        on_conflict: str,
        batch_size: int,
        resume: bool,
        restart: bool,
        create_missing: bool = False,
        **importer_options: object,
    ) -> None:
        if not 1 <= batch_size <= LARGEST_BATCH:
            raise CommandError(f"--batch-size must be between 1 and {LARGEST_BATCH}.", returncode=terminal.NOT_TRIED)
        options = Options(dry_run, on_conflict, create_missing, batch_size, resume, restart)
        try:
            tally, import_report = self._run(self.importer(importer_options), tenant, file, format, report, options)
        except BrokenPipeError:
            raise
        except OSError as problem:
            # A report on a full disk comes without a name, and after some rows.
            where = problem.filename or report or "standard output"
            code = SOME_REJECTED if problem.errno in (errno.ENOSPC, errno.EDQUOT) else terminal.NOT_TRIED
            raise CommandError(f"{where}: {problem.strerror}", returncode=code) from problem
        except KeyboardInterrupt:
            # For 30 seconds a run without --resume would be told that this process is still working.
            advice = "Nothing was changed." if dry_run else "Run the command again with --resume to continue."
            raise CommandError(f"Interrupted. {advice}", returncode=terminal.INTERRUPTED) from None
        self._show(tally, import_report, report, dry_run=dry_run)
        sys.exit(SOME_REJECTED if tally.failed else 0)

    def _run(
        self, importer: Importer, tenant: str, file: Path, form: str | None, report: Path | None, options: Options
    ) -> tuple[Tally, Report]:
        form = format_of(file.name, form)
        # It is read twice, and once more by a run that continues.
        reject_special(file)
        if report is not None:
            format_of(report.name, None)
            if report.resolve() == file.resolve():
                raise FileUnusable("The report would replace the imported file. Give --report another name.")
        tenant_id = tenant_named(tenant).pk
        if report is not None:
            # Before the import begins: after an error the next run would be told that this one is still working.
            os.close(os.open(report, os.O_WRONLY | os.O_CREAT, 0o600))
        files: list[ReportFile] = []

        def open_report(after_line: int) -> Report:
            if after_line:
                self.stdout.write(f"Continuing after line {after_line}.")
            if report is None:
                return Report()
            files.append(ReportFile(report, after_line=after_line))
            return Report(files[0])

        what = "Checking" if options.dry_run else "Importing"
        try:
            with file.open("rb") as stream, terminal.measured(self.stdout, what, size_of(stream)) as progress:

                def seen(tally: Tally, offset: int) -> None:
                    progress(offset, f"{terminal.counted(tally.rows, 'row')}, {tally.failed} rejected")

                return importer(
                    tenant_id=tenant_id, stream=stream, form=form, options=options, open_report=open_report, seen=seen
                )
        finally:
            for opened in files:
                opened.close()

    def _show(self, tally: Tally, import_report: Report, path: Path | None, *, dry_run: bool) -> None:
        if import_report.first_faults:
            terminal.table(
                self.stdout, COLUMNS, [(f.line, f.field or "-", f.reason) for f in import_report.first_faults]
            )
        if more := import_report.faults - len(import_report.first_faults):
            self.stdout.write(f"{more} more are {f'in {path}' if path else 'only listed with --report'}.")
        for note in import_report.notes:
            self.stdout.write(note)
        done = ", ".join(f"{number} {word}" for word, number in tally.counts().items())
        self.stdout.write(f"{'Dry run, nothing was changed: ' if dry_run else ''}{done} of {tally.rows} rows.")


class ExportCommand(terminal.OperatorCommand):
    """Export rows of a tenant to a file or to standard output."""

    after_interruption = terminal.STARTS_OVER

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="The tenant's slug (see list_tenants).")
        parser.add_argument(
            "file",
            metavar="FILE",
            nargs="?",
            type=Path,
            help="The file to write (mode 0600; an existing one is replaced at the end). Default: standard output.",
        )
        parser.add_argument("--format", choices=FORMATS, help="csv or jsonl (default: by the file's name, else jsonl).")

    def export(
        self,
        tenant: str,
        file: Path | None,
        form: str,
        *,
        columns: Sequence[str],
        rows: Callable[[UUID], Iterator[Mapping[str, object]]],
        what: str,
    ) -> None:
        """Write the rows, and their number to standard error."""
        number = 0
        try:
            with output_stream(file, otherwise=cast(IO[str], self.stdout)) as stream:
                writer = RowWriter(stream, form, columns)
                for row in rows(tenant_named(tenant).pk):
                    writer.write(row)
                    number += "kind" not in row
        except BrokenPipeError:
            # `export_users acme | head` is legitimate.
            sys.exit(0)
        except OSError as problem:
            where = problem.filename or "standard output"
            raise CommandError(f"{where}: {problem.strerror}", returncode=terminal.NOT_TRIED) from problem
        self.stderr.write(f"{number} {what}.")


def form_of(file: Path | None, form: str | None) -> str:
    """Return the format of an export. Raises FileUnusable if neither the option nor the file's name states it."""
    return (form or JSONL) if file is None else format_of(file.name, form)

"""What the commands that import and export have in common: one set of options, one report, one set of exit codes."""

import errno
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from identity_platform.api.errors import ApiError
from identity_platform.transfer.errors import FileUnusable
from identity_platform.transfer.files import RowWriter, reject_special, written
from identity_platform.transfer.report import COLUMNS, Report, ReportFile, Tally
from identity_platform.transfer.rows import FORMATS, JSONL, format_of, size_of
from identity_platform.transfer.runs import FAIL, ON_CONFLICT, Options
from tenants.management import terminal
from tenants.queries import tenant_named

LARGEST_BATCH = 5000
# Some rows are not in; the report says which and why.
SOME_BAD = 1


class ImportCommand(BaseCommand):
    """Reads the options, shows the progress and the report. A command says in `bring_in` what it imports."""

    what: str

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="The tenant's short name (list_tenants shows it).")
        parser.add_argument("file", metavar="FILE", type=Path, help="What to import, in UTF-8.")
        parser.add_argument("--format", choices=FORMATS, help="csv or jsonl; taken from the file's name if left out.")
        parser.add_argument("--dry-run", action="store_true", help="Check everything, change nothing.")
        parser.add_argument(
            "--on-conflict",
            choices=ON_CONFLICT,
            default=FAIL,
            help="What becomes of a row that is there already: fail (it is in the report; the default), skip, or update.",
        )
        parser.add_argument(
            "--report",
            type=Path,
            metavar="FILE",
            help="Write line, field and reason of every bad row to this .csv or .jsonl.",
        )
        parser.add_argument(
            "--batch-size", type=int, default=2000, help=f"Rows in a transaction (2000; 1 to {LARGEST_BATCH})."
        )
        again = parser.add_mutually_exclusive_group()
        again.add_argument(
            "--resume",
            action="store_true",
            help="Go on with an interrupted import of this file at once, taking it over if its process still runs. "
            "Without it the same command goes on as well, once that process has been silent for 30 seconds.",
        )
        again.add_argument(
            "--restart", action="store_true", help="Forget an interrupted import: begin with the first row."
        )

    def handle(self, *args: object, **options: Any) -> None:
        if not 1 <= options["batch_size"] <= LARGEST_BATCH:
            raise CommandError(f"--batch-size must be between 1 and {LARGEST_BATCH}.", returncode=terminal.NOT_TRIED)
        chosen = Options(
            dry_run=options["dry_run"],
            on_conflict=options["on_conflict"],
            create_missing=options.get("create_missing", False),
            batch_size=options["batch_size"],
            resume=options["resume"],
            restart=options["restart"],
        )
        try:
            tally, report = self._run(chosen, options)
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        except BrokenPipeError:
            raise
        except OSError as problem:
            # A report on a full disk comes without a name, and after some rows.
            where = problem.filename or options["report"] or "standard output"
            code = SOME_BAD if problem.errno in (errno.ENOSPC, errno.EDQUOT) else terminal.NOT_TRIED
            raise CommandError(f"{where}: {problem.strerror}", returncode=code) from problem
        except KeyboardInterrupt:
            # Without --resume it would be told for a while that this one is at work still.
            said = "Interrupted: run it again with --resume to go on where it was."
            if options["dry_run"]:
                said = "Interrupted: nothing was changed."
            raise CommandError(said, returncode=terminal.INTERRUPTED) from None
        self._say(tally, report, chosen, options["report"])
        sys.exit(SOME_BAD if tally.failed else 0)

    def _run(self, chosen: Options, options: Mapping[str, Any]) -> tuple[Tally, Report]:
        form = format_of(options["file"].name, options["format"])
        # It is read twice, and once more by the run that goes on with it.
        reject_special(options["file"])
        if options["report"] is not None:
            format_of(options["report"].name, None)
            if options["report"].resolve() == options["file"].resolve():
                raise FileUnusable("The report would replace the file that is imported: give --report another name.")
        tenant_id = tenant_named(options["tenant"]).pk
        if options["report"] is not None:
            # Before anything is begun: the next try would be told that this one is at work still.
            os.close(os.open(options["report"], os.O_WRONLY | os.O_CREAT, 0o600))
        files: list[ReportFile] = []

        def open_report(after_line: int) -> Report:
            if after_line:
                self.stdout.write(f"Going on after line {after_line}.")
            if options["report"] is None:
                return Report()
            files.append(ReportFile(options["report"], after_line=after_line))
            return Report(files[0])

        try:
            with (
                options["file"].open("rb") as stream,
                terminal.measured(self.stdout, "Checking" if chosen.dry_run else "Importing", size_of(stream)) as seen,
            ):
                return self.bring_in(
                    options,
                    tenant_id=tenant_id,
                    stream=stream,
                    form=form,
                    options=chosen,
                    open_report=open_report,
                    seen=lambda tally, offset: seen(
                        offset, f"{terminal.counted(tally.rows, 'row')}, {tally.failed} bad"
                    ),
                )
        finally:
            for file in files:
                file.close()

    def bring_in(self, stated: Mapping[str, Any], **how: object) -> tuple[Tally, Report]:
        """Call the action that imports."""
        raise NotImplementedError

    def _say(self, tally: Tally, report: Report, chosen: Options, path: Path | None) -> None:
        if report.kept:
            terminal.table(self.stdout, COLUMNS, [(f.line, f.field or "-", f.reason) for f in report.kept])
        if report.faults > len(report.kept):
            where = f"in {path}" if path else "only with --report"
            self.stdout.write(f"{report.faults - len(report.kept)} more are {where}.")
        for note in report.notes:
            self.stdout.write(note)
        done = ", ".join(f"{number} {word}" for word, number in tally.counts().items())
        self.stdout.write(
            f"{'Dry run, nothing was changed: ' if chosen.dry_run else ''}{done} of {tally.rows} {self.what}."
        )


def add_export_arguments(parser: ArgumentParser) -> None:
    """What every export is told."""
    parser.add_argument("tenant", metavar="TENANT", help="The tenant's short name (list_tenants shows it).")
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=Path,
        help="Where to (mode 0600; replaced when the new one is whole); standard output if left out.",
    )
    parser.add_argument("--format", choices=FORMATS, help="csv or jsonl; from the file's name, else jsonl.")


def form_of(options: Mapping[str, Any]) -> str:
    """The format that is asked for; FileUnusable when a file's name does not say it."""
    if options["file"] is None:
        return options["format"] or JSONL
    return format_of(options["file"].name, options["format"])


def export(
    command: BaseCommand,
    options: Mapping[str, Any],
    columns: Sequence[str],
    rows: Callable[[UUID, str], Iterator[dict[str, Any]]],
    what: str,
) -> None:
    """Write the rows that `rows` gives for a tenant and a format; says on standard error how many there were."""
    path: Path | None = options["file"]
    number = 0
    try:
        form = form_of(options)
        tenant_id = tenant_named(options["tenant"]).pk
        with written(path, otherwise=cast(IO[str], command.stdout)) as stream:
            writer = RowWriter(stream, form, columns)
            for row in rows(tenant_id, form):
                writer.write(row)
                number += "kind" not in row
    except ApiError as error:
        raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
    except BrokenPipeError:
        # `export_users acme | head` is a fair use.
        sys.exit(0)
    except OSError as problem:
        where = problem.filename or "standard output"
        raise CommandError(f"{where}: {problem.strerror}", returncode=terminal.NOT_TRIED) from problem
    command.stderr.write(f"{number} {what}.")

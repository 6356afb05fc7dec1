"""Output of commands: tables and progress bars on a terminal, plain lines otherwise. And their common base class."""

import errno
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, TypeVar

from django.core.management.base import BaseCommand, CommandError, OutputWrapper
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from identity_platform.api.errors import ApiError
from identity_platform.management_commands import INTERRUPTED as INTERRUPTED
from tenants.database_servers import fences
from tenants.lifecycle.capacity import labels_in
from tenants.settings.setting_fields import REGION

# Nothing was tried: unknown name, wrong argument, not confirmed.
NOT_TRIED = 2
# verify_audit: no chain is broken, but at least one could not be read.
UNREACHABLE = 3
CONTINUES = "Run the command again to continue."
STARTS_OVER = "The next run starts from the beginning."
Place = TypeVar("Place", bound=Path | str)
# A table may be this many times as wide as the terminal; its cells then take several lines.
MOST_FOLDED = 1.5
UNBOUNDED = 10_000


class OperatorCommand(BaseCommand):
    """A command that ends with exit code 2 and the error's text when an action rejects the call.

    A fenced installation rejects it too. Ctrl-C ends it with exit code 130, and says what the next run does.
    `handle` declares its options as keyword arguments.
    """

    # Whether it runs in a restored installation that no operator has adopted: it writes nothing outside the global database.
    allowed_while_fenced: ClassVar[bool] = False
    # What another run does after an interruption.
    after_interruption: ClassVar[str] = CONTINUES

    def execute(self, *args: object, **options: object) -> str | None:
        try:
            if not self.allowed_while_fenced:
                fences.require()
            return super().execute(*args, **options)
        except ApiError as error:
            raise CommandError(error.text, returncode=NOT_TRIED) from error
        except KeyboardInterrupt:
            raise CommandError(f"Interrupted. {self.after_interruption}", returncode=INTERRUPTED) from None


class TenantCommand(OperatorCommand):
    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug", help="The tenant's slug (see list_tenants).")


@contextmanager
def file_errors(file: Place) -> Iterator[Place]:
    """Turn an OSError inside the block into a CommandError that names the file, folder or URL.

    A full disk is found while the work is done, so its exit code is 1.
    """
    try:
        yield file
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CommandError(
                f"{file}: {problem.strerror}. The work is not complete. Free space there and run the command again.",
                returncode=1,
            ) from problem
        raise CommandError(f"{file}: {problem.strerror}", returncode=NOT_TRIED) from problem


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of an option that is a whole number, not less than `least`."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ArgumentTypeError(f"must be a whole number, {least} or more")
        return int(text)

    return parse


def add_jobs(parser: ArgumentParser) -> None:
    """Add the option `--jobs` of commands that work on many tenants."""
    parser.add_argument("--jobs", type=at_least(1), default=2, help="Tenants at a time on each server (default 2).")


def region(text: str) -> str:
    """Return the name of a region, or an empty string for none."""
    if text and re.fullmatch(REGION.pattern, text) is None:
        raise ArgumentTypeError("a region is named by a-z, 0-9 and dashes")
    return text


def labels(text: str) -> list[str]:
    """Return the labels of a list with commas; none of an empty text."""
    try:
        return labels_in(text)
    except ValueError:
        raise ArgumentTypeError("labels are separated by commas, each of a-z, 0-9, dots and dashes") from None


def counted(number: int, thing: str) -> str:
    """A number with its noun: `1 row`, `2 rows`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def table(out: OutputWrapper, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows with a header: framed on a terminal, separated by tabs otherwise.

    On a terminal that is much too narrow, each row is a block of lines.
    """
    if not out.isatty():
        for row in [columns, *rows]:
            out.write("\t".join(str(cell) for cell in row))
        return
    drawn = Table()
    for name in columns:
        # A truncated id cannot be copied.
        drawn.add_column(name, overflow="fold")
    for row in rows:
        drawn.add_row(*(str(cell) for cell in row))
    console = Console(file=sys.stdout, markup=False)
    if Measurement.get(console, console.options.update_width(UNBOUNDED), drawn).maximum <= MOST_FOLDED * console.width:
        console.print(drawn)
        return
    widest = max(map(len, columns))
    for row in rows:
        for name, cell in zip(columns, row, strict=True):
            out.write(f"{name:{widest}}  {cell}")
        out.write("")


@contextmanager
def progress(out: OutputWrapper, what: str) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """Yield two functions: `start(total)`, and `step(line)` to call at the end of each step."""
    if not out.isatty():
        total = done = 0

        def start(step_count: int) -> None:
            nonlocal total
            total = step_count

        def step(line: str) -> None:
            nonlocal done
            done += 1
            out.write(f"{done}/{total} {line}")
            out.flush()

        yield start, step
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(file=sys.stdout, markup=False), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda step_count: bar.update(task, total=step_count), lambda line: bar.update(task, advance=1)


@contextmanager
def measured(out: OutputWrapper, what: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """Yield a function that reports progress: how much of `total` is done, and a line."""
    if not out.isatty():

        def report(done: int, line: str) -> None:
            out.write(f"{100 * done // max(total, 1)} % {line}")
            out.flush()

        yield report
        return
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(file=sys.stdout, markup=False), transient=True) as bar:
        task = bar.add_task(what, total=max(total, 1))
        yield lambda done, line: bar.update(task, completed=done, description=f"{what}: {line}")


def confirm(out: OutputWrapper, question: str, expected: str, *, yes: bool) -> None:
    """Ask the operator to type `expected`, unless `yes`. Raises CommandError if not confirmed or there is no terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"{question} Confirm with --yes, as there is no terminal.", returncode=NOT_TRIED)
    out.write(f"{question} Type {expected} to continue: ", ending="")
    out.flush()
    if sys.stdin.readline().strip() != expected:
        raise CommandError("Not confirmed: nothing was changed.", returncode=NOT_TRIED)

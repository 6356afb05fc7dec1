"""How commands speak: tables and progress bars to a person at a terminal, plain lines to everything else."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from django.core.management.base import CommandError, OutputWrapper
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

# Nothing was tried: unknown name, wrong argument, not confirmed.
NOT_TRIED = 2
# verify_audit: no chain is broken, but at least one could not be read.
UNREACHABLE = 3
INTERRUPTED = 130
# A table may be so many times as wide as the terminal; its cells take several lines then.
MOST_FOLDED = 1.5
UNBOUNDED = 10_000


def counted(number: int, thing: str) -> str:
    """A number with its noun: `1 row`, `2 rows`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def table(out: OutputWrapper, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under their columns' names: framed on a terminal, separated by tabs for programs.

    On a terminal that is much too narrow for the frame each row is a block of lines.
    """
    if not out.isatty():
        for row in [columns, *rows]:
            out.write("\t".join(str(cell) for cell in row))
        return
    drawn = Table()
    for name in columns:
        # An id that is cut cannot be copied.
        drawn.add_column(name, overflow="fold")
    for row in rows:
        drawn.add_row(*(str(cell) for cell in row))
    console = Console(file=sys.stdout, markup=False)
    if Measurement.get(console, console.options.update_width(UNBOUNDED), drawn).maximum <= MOST_FOLDED * console.width:
        console.print(drawn)
        return
    # Columns of three letters can be read by nobody: one block for each row.
    widest = max(map(len, columns))
    for row in rows:
        for name, cell in zip(columns, row, strict=True):
            out.write(f"{name:{widest}}  {cell}")
        out.write("")


@contextmanager
def progress(out: OutputWrapper, what: str) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """Give two functions: one takes how many steps there are, the other is called at each step's end with its line."""
    if not out.isatty():
        total = done = 0

        def begun(steps: int) -> None:
            nonlocal total
            total = steps

        def step(line: str) -> None:
            nonlocal done
            done += 1
            out.write(f"{done}/{total} {line}")
            out.flush()

        yield begun, step
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(file=sys.stdout, markup=False), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda steps: bar.update(task, total=steps), lambda line: bar.update(task, advance=1)


@contextmanager
def measured(out: OutputWrapper, what: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """Give a function that is told how far of `total` the work is, and a line about it."""
    if not out.isatty():

        def said(done: int, line: str) -> None:
            out.write(f"{100 * done // max(total, 1)} % {line}")
            out.flush()

        yield said
        return
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(file=sys.stdout, markup=False), transient=True) as bar:
        task = bar.add_task(what, total=max(total, 1))
        yield lambda done, line: bar.update(task, completed=done, description=f"{what}: {line}")


def confirm(out: OutputWrapper, question: str, wanted: str, *, yes: bool) -> None:
    """Go on only when `wanted` is typed, or `yes` was given; without a terminal to ask at, nothing is guessed."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"{question} Nobody is there to ask: say --yes.", returncode=NOT_TRIED)
    out.write(f"{question} Type {wanted} to go on: ", ending="")
    out.flush()
    if sys.stdin.readline().strip() != wanted:
        raise CommandError("Not confirmed: nothing was changed.", returncode=NOT_TRIED)

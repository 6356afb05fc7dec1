"""CSV (RFC 4180) and JSON lines as rows, one at a time: what cannot be read is a row with its fault, never a crash.

A file comes from somewhere else and may be broken or hostile, so every size is bounded before it is read: memory does
not grow with the file, with a line or with a cell.
"""

import csv
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Final

from identity_platform.api.errors import MalformedBody
from identity_platform.api.parsers import json_object
from identity_platform.transfer.errors import FileUnusable

CSV, JSONL = "csv", "jsonl"
FORMATS: Final = (CSV, JSONL)
LARGEST_ROW = 1024 * 1024
MOST_COLUMNS = 64
BOM = b"\xef\xbb\xbf"
NOTHING_AFTER = "nothing after this line was read"
# What a spreadsheet takes for a formula when a cell begins with it (OWASP, CSV Injection), and the mark that hides it.
FORMULA: Final = frozenset("=+-@\t\r\n＝＋－＠'")
MARK: Final = "'"
# Some spreadsheets take `;` or a tab for the separator of every file: a new cell begins behind it.
_INNER: Final = re.compile("""([;\t\r\n])(?=['"]*[=+@＝＋－＠-])""")
_MARKED: Final = re.compile("""([;\t\r\n])'(?=['"]*[=+@＝＋－＠-])""")

# The csv module's own limit (128 KiB a cell) is one for the whole process; the row's is checked here, line by line.
csv.field_size_limit(LARGEST_ROW)


@dataclass(frozen=True, slots=True)
class RowError:
    """What is wrong with one member of a row; `field` is empty when it is the row itself."""

    line: int
    field: str
    reason: str


@dataclass(slots=True)
class Row:
    """One record: the line it begins at, the byte it ends before, and its members by name, or its faults."""

    line: int
    end: int
    members: dict[str, object] = field(default_factory=dict)
    faults: list[RowError] = field(default_factory=list)


class _StructureBroken(Exception):
    """Where the next row begins cannot be known."""


def format_of(name: str, explicit_form: str | None) -> str:
    """Return `csv` or `jsonl`: the explicit form, else what the file's name ends in. Raises FileUnusable if neither says."""
    if explicit_form is not None:
        return explicit_form
    for ending, form in ((".csv", CSV), (".jsonl", JSONL), (".ndjson", JSONL)):
        if name.lower().endswith(ending):
            return form
    raise FileUnusable("The file's name ends neither in .csv nor in .jsonl: say which it is with --format.")


def digest_of(stream: IO[bytes]) -> str:
    """SHA-256 of the whole file in hex; the stream stands at its beginning afterwards."""
    stream.seek(0)
    digest = hashlib.sha256()
    while piece := stream.read(LARGEST_ROW):
        digest.update(piece)
    stream.seek(0)
    return digest.hexdigest()


def size_of(stream: IO[bytes]) -> int:
    """The file's size in bytes."""
    here = stream.tell()
    size = stream.seek(0, os.SEEK_END)
    stream.seek(here)
    return size


def rows_of(stream: IO[bytes], *, form: str, known: frozenset[str], after: tuple[int, int] = (0, 0)) -> Iterator[Row]:
    """The rows of a file, those after (line, byte) only, which is where a killed import has stopped.

    `known` are the members that a row may have. Raises FileUnusable before the first row when a CSV header is missing,
    repeats a column or has one that is not known; everything later is a fault of its row.
    """
    lines = _Lines(stream)
    if form == CSV:
        yield from _csv_rows(lines, known, after)
    else:
        lines.go_to(*after)
        yield from _json_rows(lines, known)


class _Lines:
    """Lines of bytes with their number, none longer than LARGEST_ROW."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.number = 0
        self.offset = 0
        self._skip_mark()

    def _skip_mark(self) -> None:
        self.stream.seek(0)
        if self.stream.read(len(BOM)) == BOM:
            self.offset = len(BOM)
        else:
            self.stream.seek(0)

    def go_to(self, number: int, offset: int) -> None:
        """Go on after this line, which ends before this byte; nowhere for (0, 0)."""
        if offset > self.offset:
            self.number, self.offset = number, offset
            self.stream.seek(offset)

    def next(self) -> bytes | None:
        """The next line with its end, cut behind LARGEST_ROW; None at the end of the file."""
        line = self.stream.readline(LARGEST_ROW + 1)
        if not line:
            return None
        self.number += 1
        self.offset += len(line)
        return line

    def drop_rest(self) -> None:
        """Read past the rest of a line that was cut, in pieces."""
        while piece := self.stream.readline(LARGEST_ROW):
            self.offset += len(piece)
            if piece.endswith(b"\n"):
                return


def _json_rows(lines: _Lines, known: frozenset[str]) -> Iterator[Row]:
    while (line := lines.next()) is not None:
        number = lines.number
        if len(line) > LARGEST_ROW:
            if not line.endswith(b"\n"):
                lines.drop_rest()
            yield Row(number, lines.offset, faults=[RowError(number, "", f"longer than {LARGEST_ROW} bytes")])
            continue
        if not (text := line.strip()):
            continue
        try:
            members = json_object(text)
        except MalformedBody as problem:
            # The parser of request bodies speaks of a body, and would say line 1 of every one of them.
            reason = problem.text.replace("The body", "The line").replace(" at line 1, column", ", column")
            yield Row(number, lines.offset, faults=[RowError(number, "", reason)])
            continue
        yield row_of(number, lines.offset, members, known)


def row_of(line: int, end: int, members: dict[str, object], known: frozenset[str]) -> Row:
    """Return the row of a JSON object. Unknown fields are faults, and null counts as absent."""
    strange = [name for name in members if name not in known]
    if strange:
        return Row(
            line,
            end,
            faults=[RowError(line, _shown(name), "A row of this kind has no such field.") for name in strange[:5]],
        )
    return Row(line, end, {name: value for name, value in members.items() if value is not None})


def _shown(name: str) -> str:
    return name[:64] if name.isprintable() else "?"


def _csv_rows(lines: _Lines, known: frozenset[str], after: tuple[int, int]) -> Iterator[Row]:
    header = _header(lines, known)
    lines.go_to(*after)
    while True:
        begin = lines.number + 1
        try:
            cells = _cells(lines)
        except _StructureBroken as problem:
            # A row that is opened by a lone quote could hold what its writer's users made of it: reading on at the next
            # line would take their text for rows.
            yield Row(begin, lines.offset, faults=[RowError(begin, "", f"{problem}; {NOTHING_AFTER}")])
            return
        if cells is None:
            return
        if cells:
            yield _csv_row(begin, lines.offset, header, cells)


def _header(lines: _Lines, known: frozenset[str]) -> list[str]:
    try:
        cells = _cells(lines)
    except _StructureBroken as problem:
        raise FileUnusable(f"The first line must name the columns: {problem}.") from None
    names = [cell.strip().lower() for cell in cells or []]
    if len(names) > MOST_COLUMNS:
        raise FileUnusable(f"The first line names {len(names)} columns; at most {MOST_COLUMNS} are read.")
    twice = sorted({name for name in names if names.count(name) > 1})
    strange = [name for name in names if name not in known]
    if not names or strange:
        said = f"unknown: {', '.join(repr(_shown(name)) for name in strange[:5])}" if strange else "it is empty"
        raise FileUnusable(
            f"The first line must name columns, separated by commas ({said}). Known: {', '.join(sorted(known))}."
        )
    if twice:
        raise FileUnusable(f"The first line names a column twice: {', '.join(map(_shown, twice))}.")
    return names


def _cells(lines: _Lines) -> list[str] | None:
    """One record, which may go over several lines; None at the end."""
    length = 0

    def physical() -> Iterator[str]:
        nonlocal length
        while (line := lines.next()) is not None:
            length += len(line)
            if length > LARGEST_ROW:
                raise _StructureBroken(f"longer than {LARGEST_ROW} bytes, or a quote is never closed")
            # Bytes that are no UTF-8 become lone surrogates, so that their cell is found below.
            yield line.decode("utf-8", "surrogateescape")

    try:
        return next(csv.reader(physical(), strict=True), None)
    except csv.Error as problem:
        raise _StructureBroken(f"the quotes are not those of CSV: {problem}") from None


def _csv_row(line: int, end: int, header: list[str], cells: list[str]) -> Row:
    if len(cells) != len(header):
        reason = f"{len(cells)} cells where the first line names {len(header)} columns"
        return Row(line, end, faults=[RowError(line, "", reason)])
    row = Row(line, end)
    for name, cell in zip(header, cells, strict=True):
        if not cell:
            continue
        if not cell.isascii() and any("\udc80" <= letter <= "\udcff" for letter in cell):
            row.faults.append(RowError(line, name, "not valid UTF-8"))
        elif "\0" in cell:
            row.faults.append(RowError(line, name, "NUL characters are not allowed"))
        else:
            row.members[name] = unescape_formula(cell)
    return row


def escape_formula(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula: with a quote in front where it would, also behind a separator in it.

    `unescape_formula` takes the quotes off.
    """
    inner = _INNER.sub(rf"\1{MARK}", cell)
    return MARK + inner if cell and cell[0] in FORMULA else inner


def unescape_formula(cell: str) -> str:
    """The cell as it was before `escape_formula`; others stay as they are, also `'tis`."""
    inner = cell[1:] if len(cell) > 1 and cell[0] == MARK and cell[1] in FORMULA else cell
    return _MARKED.sub(r"\1", inner)

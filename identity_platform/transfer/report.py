"""What became of the rows: counts, and line, field and reason of each that was not taken."""

import csv
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Final

from identity_platform.transfer.rows import CSV, JSONL, RowError, escape_formula, format_of, unescape_formula

COLUMNS: Final = ("line", "field", "reason")
# How many are kept at hand for a terminal or an answer.
SHOWN = 20


@dataclass(slots=True)
class Tally:
    """How many rows went which way."""

    created: int = 0
    updated: int = 0
    skipped: int = 0
    failed: int = 0

    def add(self, other: "Tally") -> None:
        for name, number in other.counts().items():
            setattr(self, name, getattr(self, name) + number)

    @property
    def rows(self) -> int:
        return sum(self.counts().values())

    def counts(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)


@dataclass(slots=True)
class Report:
    """Takes faults as they are found; writes them to a file, if there is one, and keeps the first of them."""

    file: "ReportFile | None" = None
    first_faults: list[RowError] = field(default_factory=list)
    # What is to be said of the whole.
    notes: list[str] = field(default_factory=list)
    most: int = SHOWN
    faults: int = 0

    def take(self, faults: Iterable[RowError]) -> None:
        """Add the faults of a batch, in the order of their lines."""
        for fault in sorted(faults, key=lambda fault: fault.line):
            self.faults += 1
            if len(self.first_faults) < self.most:
                self.first_faults.append(fault)
            if self.file is not None:
                self.file.write(fault)
        if self.file is not None:
            self.file.flush()


class ReportFile:
    """The report as CSV or JSON lines, readable by its owner only: reasons may tell what is in the rows.

    It is flushed before a batch is committed, so that no row is rejected without being in it. An import that goes on
    keeps what the file says about the lines before, and drops what the killed run wrote about lines that it did not
    commit.
    """

    def __init__(self, path: Path, *, after_line: int = 0) -> None:
        self.form = format_of(path.name, None)
        earlier = [fault for fault in self._read(path) if fault.line <= after_line] if after_line else []
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        path.chmod(0o600)  # also a file that was there
        self.stream: IO[str] = os.fdopen(handle, "w", encoding="utf-8", newline="")
        self.csv = csv.writer(self.stream)
        if self.form == CSV:
            self.csv.writerow(COLUMNS)
        for fault in earlier:
            self.write(fault)

    def _read(self, path: Path) -> Iterator[RowError]:
        try:
            stream = path.open(encoding="utf-8", errors="replace", newline="")
        except FileNotFoundError:
            return
        with stream:
            if self.form == CSV:
                for cells in csv.reader(stream):
                    if len(cells) == len(COLUMNS) and cells[0].isdecimal():
                        yield RowError(int(cells[0]), unescape_formula(cells[1]), unescape_formula(cells[2]))
                return
            for line in stream:
                # The last one may have been cut by the kill; its row was not committed.
                with suppress(ValueError, KeyError, TypeError):
                    said = json.loads(line)
                    yield RowError(int(said["line"]), said["field"], said["reason"])

    def write(self, fault: RowError) -> None:
        """One line."""
        if self.form == JSONL:
            said = {"line": fault.line, "field": fault.field, "reason": fault.reason}
            self.stream.write(json.dumps(said, ensure_ascii=False) + "\n")
        else:
            self.csv.writerow([fault.line, escape_formula(fault.field), escape_formula(fault.reason)])

    def flush(self) -> None:
        """Hand it to the operating system: a killed process loses nothing of it."""
        self.stream.flush()

    def close(self) -> None:
        self.stream.close()

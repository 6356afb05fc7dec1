"""Files that hold people's data or secrets: readable by their owner only, and there only when they are whole."""

import csv
import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from identity_platform.transfer.rows import CSV, escape_formula
from identity_platform.transfer.temporary_folder import temporary_folder


def reject_special(path: Path) -> None:
    """Raise OSError where a finished file would take the place of a device, a pipe or a folder: /dev/null would be gone."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "this is no regular file: name one, or a new one", str(path))


@contextmanager
def output_stream(path: Path | None, *, otherwise: IO[str]) -> Iterator[IO[str]]:
    """A stream to write to: `otherwise` without a path, or a new file (mode 0600) that takes the name when it is whole.

    A file of this name is replaced then. What was begun and failed is removed. Raises OSError, which names `path`.
    """
    if path is None:
        yield otherwise
        otherwise.flush()
        return
    reject_special(path)
    try:
        with temporary_folder(path.absolute().parent) as folder:
            draft = folder / "draft"
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(path)
    except OSError as problem:
        # Not the name of the temporary file, which the user does not know. A full disk has no name.
        raise OSError(problem.errno, problem.strerror, str(path)) from problem


class RowWriter:
    """Writes rows as CSV with these columns, or as JSON lines."""

    def __init__(self, stream: IO[str], form: str, columns: Sequence[str]) -> None:
        self.stream = stream
        self.columns = columns
        self.csv = csv.writer(stream) if form == CSV else None
        if self.csv is not None:
            self.csv.writerow(columns)

    def write(self, row: Mapping[str, object]) -> None:
        """One row; members without a value are left out."""
        if self.csv is None:
            said = {name: value for name, value in row.items() if value is not None}
            self.stream.write(json.dumps(said, ensure_ascii=False, separators=(",", ":")) + "\n")
        else:
            self.csv.writerow([_cell(row.get(name)) for name in self.columns])


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case dict() | list():
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        case _:
            return escape_formula(str(value))

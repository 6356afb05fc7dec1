"""Validate the fields of imported rows with the API's serializer fields, so that files and requests follow one rule."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.fields import SkipField

from identity_platform.api.errors import MalformedBody
from identity_platform.api.fields import StrictField
from identity_platform.api.parsers import json_object
from identity_platform.transfer.rows import Row, RowError

# Converts a CSV cell to what JSON would contain. Its ValueError says what to write instead.
TextParser = Callable[[str], object]


def boolean(text: str) -> bool:
    """Read true or false in any case, as spreadsheets write them in capitals."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("Write true or false.")


def name_list(text: str) -> list[object]:
    """Read a JSON array of names, or names separated by semicolons."""
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError('Separate names by semicolons, or write JSON: ["one", "two"].') from None
        return list(names)
    return [name for piece in text.split(";") if (name := piece.strip())]


def json_cell(text: str) -> dict[str, object]:
    """Read a JSON object."""
    try:
        return json_object(text.encode("utf-8", "surrogatepass"))
    except MalformedBody as problem:
        raise ValueError(problem.text.replace("The body", "The cell")) from None


class RowSchema:
    """The fields of one kind of row, and the parsers of their text form."""

    def __init__(
        self,
        fields: Mapping[str, StrictField],
        *,
        needed: tuple[str, ...],
        texts: Mapping[str, TextParser],
    ) -> None:
        self.fields = dict(fields)
        self.needed = needed
        self.texts = dict(texts)
        self.known = frozenset(self.fields)

    def read(self, row: Row, *, from_text: bool) -> dict[str, Any]:
        """Return the validated values of a row. Errors are added to `row.faults`."""
        values: dict[str, Any] = {}
        for name, value in row.members.items():
            if name not in self.fields:
                row.faults.append(RowError(row.line, name, "A row of this kind has no such field."))
                continue
            try:
                if from_text and name in self.texts:
                    value = self.texts[name](str(value))
                values[name] = self.fields[name].run_validation(value)
            except ValueError as problem:
                row.faults.append(RowError(row.line, name, str(problem)))
            except ValidationError as problem:
                row.faults.append(RowError(row.line, name, _said(problem.detail)))
            except SkipField:
                continue
        row.faults += [
            RowError(row.line, name, "This field is required.")
            for name in self.needed
            if name not in row.members and not row.faults
        ]
        return values


def _said(detail: object) -> str:
    """Return the first message, at any depth."""
    while isinstance(detail, list | dict) and detail:
        detail = next(iter(detail.values())) if isinstance(detail, dict) else detail[0]
    return str(detail)

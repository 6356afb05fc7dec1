"""Execute one statement that is written by hand, in the database of an alias."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connections

# By position or by name. Without values, `%` is an ordinary character of the statement.
Values = Sequence[Any] | Mapping[str, Any] | None


def execute(alias: str, statement: str, values: Values = None) -> int:
    """Execute the statement; return how many rows it has changed or selected."""
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, values)
        changed: int = cursor.rowcount
        return changed


def fetch_row(alias: str, statement: str, values: Values = None) -> Any:
    """Execute the statement; return its first row as a tuple, None if it has none."""
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchone()


def fetch_rows(alias: str, statement: str, values: Values = None) -> list[Any]:
    """Execute the statement; return its rows as tuples."""
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, values)
        rows: list[Any] = cursor.fetchall()
        return rows

"""Pages of a list as JSON that PostgreSQL builds and the API passes through, for the few hottest lists.

A page near the start is one statement with the total. From `far` on, the total is read first, and the page is looked up
from the nearer end of the list: OFFSET reads and discards all rows before the page.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.backends.utils import CursorWrapper

from identity_platform.api.pagination import offset


@dataclass(frozen=True, slots=True)
class Query:
    """A statement of one value, and its parameters."""

    sql: str
    values: list[Any]


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows of a page: `limit` of them after the first `offset`, from the oldest on if `backwards`."""

    limit: int
    offset: int
    far: bool = False
    backwards: bool = False

    @property
    def direction(self) -> str:
        return "ASC" if self.backwards else "DESC"


def far_slice(start: int, limit: int, total: int) -> Slice:
    """Return the rows of a page that begins before `total`, counted from the nearer end of the list."""
    limit = min(limit, total - start)
    behind = total - start - limit
    if start <= behind:
        return Slice(limit, start, far=True)
    return Slice(limit, behind, far=True, backwards=True)


def read_page(
    cursor: CursorWrapper, *, total: Query, rows: Callable[[Slice], Query], page: int, limit: int, far: int | None
) -> tuple[int, str]:
    """Return the total and the rows of one page as JSON text.

    `rows` returns the query of a slice, its JSON always newest first. None for `far` always reads one statement, for
    totals that are not cheap to read.
    """
    start = offset(page, limit)
    if far is None or start < far:
        query = rows(Slice(limit, start))
        cursor.execute(f"SELECT ({total.sql}), ({query.sql})", [*total.values, *query.values])
        count, text = cursor.fetchone()
        return count, text
    cursor.execute(total.sql, total.values)
    [count] = cursor.fetchone()
    if start >= count:
        return count, "[]"
    query = rows(far_slice(start, limit, count))
    cursor.execute(query.sql, query.values)
    [text] = cursor.fetchone()
    return count, text


def json_time(column: str) -> str:
    """Return the SQL that formats a timestamp as the API does."""
    return f"to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"

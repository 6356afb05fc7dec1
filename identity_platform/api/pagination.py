"""Pages of list actions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Model, QuerySet

LARGEST_PAGE = 100
# OFFSET is a bigint. A page beyond it is past the end of every list.
LARGEST_OFFSET = 2**62


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list: its rows and the true totals, also past the end."""

    rows: Sequence[Any]
    page: int
    limit: int
    total: int

    @property
    def total_pages(self) -> int:
        return -(-self.total // self.limit)

    def totals(self) -> dict[str, int]:
        """Return the fields of the specification's pagination object."""
        return {"page": self.page, "limit": self.limit, "total": self.total, "total_pages": self.total_pages}


def offset(page: int, limit: int) -> int:
    """Return how many rows precede the page, bounded so that no page number overflows bigint."""
    return min((page - 1) * limit, LARGEST_OFFSET)


def page_of(ordered: "QuerySet[Model]", page: int, limit: int) -> Page:
    """Return one page of an ordered query set with the true total."""
    start = offset(page, limit)
    return Page(list(ordered[start : start + limit]), page, limit, ordered.count())

"""Pages of lists: how one is asked for, its rows, and the totals beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from django.db.models import Model, QuerySet
from rest_framework import serializers

from identity_platform.api.fields import QueryInteger, Text

Row = TypeVar("Row", bound=Model)

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
    # Only of lists that can be continued by cursor.
    next_cursor: str | None = None

    @property
    def total_pages(self) -> int:
        return -(-self.total // self.limit)

    def totals(self) -> dict[str, int]:
        """Return the fields of the specification's pagination object."""
        return {"page": self.page, "limit": self.limit, "total": self.total, "total_pages": self.total_pages}


def offset(page: int, limit: int) -> int:
    """Return how many rows precede the page, bounded so that no page number overflows bigint."""
    return min((page - 1) * limit, LARGEST_OFFSET)


def filtered(rows: "QuerySet[Row]", **lookups: object) -> "QuerySet[Row]":
    """Filter by the look-ups that are stated, not None."""
    return rows.filter(**{lookup: value for lookup, value in lookups.items() if value is not None})


def page_of(ordered: "QuerySet[Model]", page: int, limit: int) -> Page:
    """Return one page of an ordered query set with the true total."""
    start = offset(page, limit)
    return Page(list(ordered[start : start + limit]), page, limit, ordered.count())


def page_limit(default: int) -> QueryInteger:
    """How many rows a page has; a limit above the largest page counts as the largest page."""
    return QueryInteger(required=False, default=default, min_value=1, max_value=LARGEST_PAGE, clamp=True)


class PageQuery(serializers.Serializer[object]):
    page = QueryInteger(required=False, default=1, min_value=1, clamp=True)
    limit = page_limit(20)


class CursorField(serializers.Serializer[object]):
    # For lists by `page` that can also be continued by cursor.
    cursor = Text(
        required=False,
        max_length=100,
        help_text="`next_cursor` of the previous page, with the same filters and instead of `page`.",
    )

    def to_internal_value(self, data: object) -> dict[str, Any]:
        """Reject a cursor together with a page."""
        fields = cast(dict[str, Any], super().to_internal_value(data))
        if "cursor" in fields and cast(Mapping[str, object], data).get("page") is not None:
            raise serializers.ValidationError({"cursor": ["Send either `page` or `cursor`."]})
        return fields


class NextCursorOut(serializers.Serializer[object]):
    next_cursor = serializers.CharField(
        allow_null=True, help_text="Send it as `cursor` for the next page; null at the end."
    )


class PaginationOut(serializers.Serializer[object]):
    # What `Page.totals()` says: beside the rows, or as an object of its own. No docstring: the API document would take it
    # for the description of every list.
    page = serializers.IntegerField()
    limit = serializers.IntegerField()
    total = serializers.IntegerField()
    total_pages = serializers.IntegerField()

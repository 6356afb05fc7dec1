"""Pages over HTTP: how a list is asked for, and what stands beside its rows."""

from rest_framework import serializers

from identity_platform.api.fields import QueryInteger
from identity_platform.api.pagination import LARGEST_PAGE


def page_limit(default: int) -> QueryInteger:
    """How many rows a page has; a limit above the largest page counts as the largest page."""
    return QueryInteger(required=False, default=default, min_value=1, max_value=LARGEST_PAGE, clamp=True)


class PageQuery(serializers.Serializer[object]):
    page = QueryInteger(required=False, default=1, min_value=1, clamp=True)
    limit = page_limit(20)


class PaginationOut(serializers.Serializer[object]):
    # What `Page.totals()` says: beside the rows, or as an object of its own. No docstring: the API document would take it
    # for the description of every list.
    page = serializers.IntegerField()
    limit = serializers.IntegerField()
    total = serializers.IntegerField()
    total_pages = serializers.IntegerField()

"""Totals of lists that very many rows match: they take longest to count, so each process keeps them for some seconds."""

import hashlib
from collections.abc import Callable
from typing import Final

from django.core.cache.backends.locmem import LocMemCache

MANY: Final = 10_000
SECONDS: Final = 10
_kept: Final = LocMemCache("totals", {"max_entries": 1000})


def total_of(list_id: bytes, count: Callable[[], int]) -> int:
    """Return the number that `count` returns. `list_id` identifies the tenant, the list and its filters."""
    key = hashlib.sha256(list_id).hexdigest()
    total: int | None = _kept.get(key)
    if total is None:
        total = count()
        if total >= MANY:
            _kept.set(key, total, SECONDS)
    return total

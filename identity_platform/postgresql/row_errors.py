"""Missing rows and violated constraints as errors of the API."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import IntegrityError
from django.db.models import QuerySet

from identity_platform.api.errors import ApiError

Row = TypeVar("Row")


def first_or(rows: "QuerySet[Any, Row]", error: type[ApiError]) -> Row:
    """Return the first row, or raise this error if there is none."""
    found = rows.first()
    if found is None:
        raise error
    return found


@contextmanager
def unique_or(error: type[ApiError]) -> Iterator[None]:
    """Raise this error if the block violates a constraint: the database decides between parallel calls."""
    try:
        yield
    except IntegrityError as clash:
        raise error from clash

"""Missing rows and violated constraints as errors of the API."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from django.db import IntegrityError
from django.db.models import QuerySet

from identity_platform.api.errors import ApiError

Row = TypeVar("Row")


def first_or(rows: "QuerySet[Any, Row]", error: type[ApiError]) -> Row:
    """Return the first row, or raise this error if there is none."""
    row = rows.first()
    if row is None:
        raise error
    return row


@contextmanager
def unique_or(error: type[ApiError], **of_constraints: type[ApiError]) -> Iterator[None]:
    """Raise this error if the block violates a constraint: the database decides between parallel calls.

    `of_constraints` are the errors of certain constraints, by their names.
    """
    try:
        yield
    except IntegrityError as clash:
        cause = clash.__cause__
        name = cause.diag.constraint_name if isinstance(cause, psycopg.Error) else None
        raise of_constraints.get(name or "", error) from clash

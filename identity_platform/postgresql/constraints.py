"""Violated unique constraints as errors: the database decides between parallel calls."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError

from identity_platform.api.errors import ApiError


@contextmanager
def unique_or(error: type[ApiError]) -> Iterator[None]:
    """Raise this error if the block violates a constraint."""
    try:
        yield
    except IntegrityError as clash:
        raise error from clash

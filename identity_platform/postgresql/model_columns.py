"""Rows of models that statements written by hand return.

Django compiles a query each time it is executed, which takes several times as long as PostgreSQL needs for it. A statement of
the busiest requests is therefore written once, and this gives its rows the form that Django's queries have.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

import orjson
from django.db import models

Row = TypeVar("Row", bound=models.Model)


class ModelColumns(Generic[Row]):
    """All columns of a model, in the order of its fields, so that no field of a row is read again on access."""

    def __init__(self, model: type[Row]) -> None:
        fields = model._meta.concrete_fields
        self._model = model
        self._names = tuple(field.attname for field in fields)
        self._columns = tuple(field.column for field in fields)
        self._documents = tuple(i for i, field in enumerate(fields) if isinstance(field, models.JSONField))

    def __len__(self) -> int:
        return len(self._names)

    def of(self, table: str) -> str:
        """Return the columns for a SELECT or RETURNING of the table with this name or alias."""
        return ", ".join(f"{table}.{column}" for column in self._columns)

    def row(self, alias: str, values: Sequence[object]) -> Row:
        """Return the row of these values from the database `alias`."""
        decoded = list(values)
        for i in self._documents:
            # Django makes the driver return JSON as text.
            value = decoded[i]
            decoded[i] = orjson.loads(value) if isinstance(value, str) else value
        return self._model.from_db(alias, self._names, decoded)

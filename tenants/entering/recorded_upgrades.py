"""Upgrade many tenant databases with the statements of one, because planning them takes longer than running them.

The same migrations, begun from the same applied ones, make the same statements, with two exceptions. A migration that runs code
of its own is never recorded, nor one whose default is a function: it would give all databases one value, such as one time or
one random key. And databases may differ: so the rows of queries (of the catalogue, for the name of a constraint)
are recorded as well, and a database that returns others is upgraded by planning.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import Migration
from django.db.migrations.operations import AddField, AlterField, RunPython, RunSQL, SeparateDatabaseAndState
from django.db.migrations.operations.base import Operation
from django.db.models import Field

from tenants.entering.target import TENANT_ALIAS

# App and name of the migrations that a database has.
Applied = frozenset[tuple[str, str]]
# Its rows have the time of each database: `repeat` writes them itself.
_MIGRATIONS = '"django_migrations"'


class DatabaseDiffers(Exception):
    """A query was answered otherwise than by the database whose statements were recorded."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, the migration that made it, and its rows if it is a query."""

    migration: str
    text: Any
    parameters: Any
    rows: tuple[tuple[object, ...], ...] | None


@dataclass(slots=True)
class Recording:
    """What a run of migrations executed: names of migrations as (app, name), and their statements in order."""

    migrations: list[tuple[str, str]] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    repeatable: bool = True

    @contextmanager
    def of(self, connection: BaseDatabaseWrapper, current: Callable[[], str]) -> Iterator[None]:
        """Record what the connection executes while `current` names a migration."""

        def note(execute: Callable[..., Any], text: Any, parameters: Any, many: bool, context: dict[str, Any]) -> Any:
            result = execute(text, parameters, many, context)
            if migration := current():
                self.repeatable = self.repeatable and not many
                if _MIGRATIONS not in str(text):
                    self.statements.append(Statement(migration, text, parameters, _rows(context["cursor"].cursor)))
            return result

        with connection.execute_wrapper(note):
            yield

    def repeat(self, connection: BaseDatabaseWrapper, begin: Callable[[str], None]) -> None:
        """Execute the statements in the open transaction. `begin` gets the migration of each. Raises DatabaseDiffers."""
        with connection.cursor() as cursor:
            for statement in self.statements:
                begin(statement.migration)
                cursor.execute(statement.text, statement.parameters)
                if statement.rows is not None and tuple(cursor.fetchall()) != statement.rows:
                    raise DatabaseDiffers(statement.migration)
            values = [value for name in self.migrations for value in name]
            places = ", ".join(["(%s, %s, statement_timestamp())"] * len(self.migrations))
            cursor.execute(f"INSERT INTO {_MIGRATIONS} (app, name, applied) VALUES {places}", values)


def begin_upgrade(connection: BaseDatabaseWrapper) -> Applied:
    """Prepare the open transaction for migrations; return those that the database has, none if it is empty."""
    with connection.cursor() as cursor:
        # A migration may be slow, but waiting for a lock would block the tenant. A table with pending deferred checks cannot be
        # altered by the next migration.
        cursor.execute(
            "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; "
            "SET LOCAL lock_timeout = '10s'; SET CONSTRAINTS ALL IMMEDIATE"
        )
        cursor.execute("SELECT to_regclass('django_migrations') IS NOT NULL")
        if cursor.fetchone() != (True,):
            return frozenset()
        cursor.execute("SELECT app, name FROM django_migrations")
        return frozenset(cursor.fetchall())


def is_repeatable(migration: Migration) -> bool:
    """Return whether the migration makes the same statements in every tenant database, and no others than `repeat` executes.

    Django writes a row for each migration that a squashed one replaces.
    """
    return not migration.replaces and all(
        _makes_statements(operation, migration.app_label) for operation in migration.operations
    )


def _makes_statements(operation: Operation, label: str) -> bool:
    if isinstance(operation, SeparateDatabaseAndState):
        return all(_makes_statements(inner, label) for inner in operation.database_operations)
    if isinstance(operation, RunSQL) and _MIGRATIONS.strip('"') in str(operation.sql):
        return False
    if isinstance(operation, AddField | AlterField) and _has_own_values(operation.field):
        return False
    # As RunPython itself decides whether to run here.
    elsewhere = isinstance(operation, RunPython) and not router.allow_migrate(TENANT_ALIAS, label, **operation.hints)
    return operation.reduces_to_sql or elsewhere


def _has_own_values(column: "Field[Any, Any]") -> bool:
    """Return whether the value for existing rows is computed for each database."""
    # With `db_default` the database computes it, by the statement that adds the column.
    in_python = column.has_default() and not column.has_db_default()
    is_made = in_python and callable(column.default) and column.default not in (dict, list)
    return is_made or getattr(column, "auto_now", False) or getattr(column, "auto_now_add", False)


def _rows(cursor: Any) -> tuple[tuple[object, ...], ...] | None:
    """Return the rows of a query, and leave them to its caller."""
    if cursor.description is None:
        return None
    rows = tuple(cursor.fetchall())
    if rows:
        cursor.scroll(0, mode="absolute")
    return rows

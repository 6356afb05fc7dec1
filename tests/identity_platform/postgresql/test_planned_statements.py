"""Statements that the server plans once, also after the type of a column changes."""

import secrets
from collections.abc import Iterator

import pytest
from django.db import NotSupportedError, connection, transaction


@pytest.fixture
def table() -> Iterator[str]:
    """A table for this test, with one row."""
    name = f"planned_{secrets.token_hex(4)}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {name} (email varchar(10))")
        cursor.execute(f"INSERT INTO {name} VALUES ('a@b.c')")
        yield name
        cursor.execute(f"DROP TABLE {name}")


def emails(table: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT email FROM {table} WHERE email LIKE %s", ["a%"])
        return [email for (email,) in cursor.fetchall()]


def planned(table: str) -> int:
    """Return how many planned statements about the table this connection has."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s", [f"%FROM {table}%"])
        return int(cursor.fetchone()[0])


def widen(table: str) -> None:
    # In a DO block, so that the driver does not notice, as with another process.
    with connection.cursor() as cursor:
        cursor.execute(f"DO $$ BEGIN ALTER TABLE {table} ALTER email TYPE varchar(20); END $$")


def test_repeated_statement_is_planned_once(table: str) -> None:
    assert all(emails(table) == ["a@b.c"] for _ in range(8))
    assert planned(table) == 1


def test_planned_statement_survives_a_column_type_change(table: str) -> None:
    for _ in range(8):
        emails(table)
    widen(table)
    assert emails(table) == ["a@b.c"]


def test_planned_statement_in_transaction_works_after_rollback(table: str) -> None:
    for _ in range(8):
        emails(table)
    widen(table)
    with pytest.raises(NotSupportedError, match="cached plan"), transaction.atomic():
        emails(table)
    with transaction.atomic():
        assert emails(table) == ["a@b.c"]

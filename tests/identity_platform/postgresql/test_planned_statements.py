"""Statements that the server plans once, and what becomes of them when a column changes under them."""

import secrets
from collections.abc import Iterator

import pytest
from django.db import NotSupportedError, connection, transaction


@pytest.fixture
def table() -> Iterator[str]:
    """A table of this test's own, with one row."""
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
    """How many statements about the table the server keeps planned for this connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s", [f"%FROM {table}%"])
        return int(cursor.fetchone()[0])


def widen(table: str) -> None:
    # Past the driver's own watch, as another process does it.
    with connection.cursor() as cursor:
        cursor.execute(f"DO $$ BEGIN ALTER TABLE {table} ALTER email TYPE varchar(20); END $$")


def test_a_repeated_statement_is_planned_once(table: str) -> None:
    assert all(emails(table) == ["a@b.c"] for _ in range(8))
    assert planned(table) == 1


def test_a_planned_statement_outlives_a_change_of_a_columns_type(table: str) -> None:
    for _ in range(8):
        emails(table)
    widen(table)
    assert emails(table) == ["a@b.c"]


def test_inside_a_transaction_it_fails_once_and_works_after_the_rollback(table: str) -> None:
    for _ in range(8):
        emails(table)
    widen(table)
    with pytest.raises(NotSupportedError, match="cached plan"), transaction.atomic():
        emails(table)
    with transaction.atomic():
        assert emails(table) == ["a@b.c"]

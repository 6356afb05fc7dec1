"""Times read from the database, by the driver's loader."""

from datetime import UTC, datetime

import pytest
from django.db import connection
from psycopg import adapters
from psycopg.pq import Format

from identity_platform.postgresql.base import MomentLoader


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-23 12:30:45.123456+00", datetime(2026, 11, 23, 12, 30, 45, 123456, UTC)),
        ("2026-11-23 12:30:45.5+05:30", datetime(2026, 11, 23, 7, 0, 45, 500000, UTC)),
        ("1970-01-01 00:00:00-08", datetime(1970, 1, 1, 8, tzinfo=UTC)),
        (None, None),
    ],
)
def test_time_is_read_in_utc(text: str | None, expected: datetime | None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::timestamptz, 1, %s::timestamptz", [text, text])
        first, _, second = cursor.fetchone()
    assert first == second == expected
    assert first is None or first.tzinfo is UTC


def test_cursors_keep_the_loader() -> None:
    with connection.cursor() as cursor:
        loader = cursor.cursor.adapters.get_loader(adapters.types["timestamptz"].oid, Format.TEXT)
    assert loader is MomentLoader

"""Pages of the console while the global database accepts no writes."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

from tests.console.staff import new_operator


@contextmanager
def only_reading() -> Iterator[None]:
    """In one transaction, so that no other connection sees it, even behind a pooler."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
        yield
        transaction.set_rollback(True)


def test_write_during_migration_asks_to_retry() -> None:
    staff = new_operator()
    staff.browser.raise_request_exception = False
    with only_reading():
        response = staff.send_password()
    assert (response.status_code, "Try again" in response.json()["message"]) == (503, True)
    assert int(response.headers["Retry-After"]) >= 1

"""What a page of the console answers, and the log says, when the global database cannot serve it."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction
from structlog.testing import capture_logs

from tests.console.staff import Staff, new_operator


@contextmanager
def while_the_database_is(told: str) -> Iterator[None]:
    """In one transaction, so that behind a pooler too nobody else sees it."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(told)
        yield
        transaction.set_rollback(True)


def as_browsers_see(staff: Staff) -> Staff:
    staff.browser.raise_request_exception = False
    return staff


def test_a_page_that_cannot_write_asks_to_come_again() -> None:
    staff = as_browsers_see(new_operator())
    with while_the_database_is("SET TRANSACTION READ ONLY"):
        answer = staff.send_password()
    assert (answer.status_code, "try again" in answer.json()["message"]) == (503, True)
    assert int(answer.headers["Retry-After"]) >= 1


def test_a_fault_of_a_page_is_in_the_log_without_what_was_asked() -> None:
    staff = as_browsers_see(new_operator().sign_in())
    with while_the_database_is("SET LOCAL search_path TO nowhere"), capture_logs() as lines:
        answer = staff.get("/admin/", secret="hidden-word")
    assert answer.status_code == 500
    (fault,) = [line for line in lines if line["event"] == "fault"]
    assert (fault["kind"], fault["log_level"]) == ("ProgrammingError", "error")
    assert any(step.startswith("identity_platform.console") for step in fault["trace"])
    assert "hidden-word" not in str(lines)

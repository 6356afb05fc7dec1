"""What a server writes to its log."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import psycopg
from psycopg import sql

from identity_platform.console.signin.models import BrowserSession
from tests.machine.conftest import Holder, Platform, within


@contextmanager
def without_sessions(home: Path) -> Iterator[None]:
    """Pages fail while the table of the console's sessions has another name."""
    holder = Holder(home)
    there, away = sql.Identifier(BrowserSession._meta.db_table), sql.Identifier("away")
    rename = sql.SQL("ALTER TABLE {} RENAME TO {}")
    try:
        with psycopg.connect(holder.database_url, autocommit=True) as raw:
            raw.execute(rename.format(there, away))
            try:
                yield
            finally:
                raw.execute(rename.format(away, there))
    finally:
        holder.leave()


def test_a_fault_of_a_page_is_in_the_log_without_what_was_asked(
    settled_home: Path, serve: Callable[..., Platform]
) -> None:
    platform = serve(settled_home, WEB_WORKERS="1")
    cookie = {"Cookie": f"sessionid={'hidden-cookie'.ljust(32, 'x')}"}
    with without_sessions(settled_home):
        connection = HTTPConnection("127.0.0.1", platform.port, timeout=30)
        connection.request("GET", "/admin/?secret=hidden-word", headers=cookie)
        assert connection.getresponse().status == 500

    def faults() -> list[dict[str, object]]:
        lines = [json.loads(line) for line in platform.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == "fault"]

    assert within(10, lambda: faults() != [])
    (fault,) = faults()
    assert (fault["kind"], fault["level"]) == ("ProgrammingError", "error")
    assert "identity_platform.console.signin.store:load" in str(fault["trace"])
    assert "hidden" not in platform.log.read_text()

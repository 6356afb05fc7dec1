"""What a drill counts: writes that were acknowledged and are gone, records of others, and the time without a success."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest

from drill.load import Outcome, Writer, load, outcome
from drill.report import Result

GOOD = Outcome(requests=10, failed={}, acknowledged=5, lost=0, wrong=0, longest_gap=0.5)


class Store(BaseHTTPRequestHandler):
    """Stores one record; `fault` says how it misbehaves from the third write on."""

    protocol_version = "HTTP/1.1"
    fault: ClassVar[str] = ""
    record: ClassVar[dict[str, str]] = {}
    writes: ClassVar[int] = 0

    def do_GET(self) -> None:
        self._respond(200, self.record)

    def do_PUT(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind = type(self)
        kind.writes += 1
        fault = self.fault if self.writes >= 3 else ""
        if fault == "unavailable" and self.writes < 6:
            self._respond(503, {})
            return
        if fault != "forgets":
            kind.record = self.record | sent
        if fault == "mixes up":
            kind.record = self.record | {"id": str(uuid4())}
        self._respond(200, self.record)

    def _respond(self, status: int, body: dict[str, str]) -> None:
        said = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def store(request: Any) -> Iterator[tuple[int, UUID]]:
    """The port of a store with a fault, and the id of its record."""
    user = uuid4()
    kind = type(
        "Faulty", (Store,), {"fault": request.param, "record": {"id": str(user), "name": "Person 1"}, "writes": 0}
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_address[1], user
        server.shutdown()


def worked(port: int, user: UUID) -> Outcome:
    """What a writer has got after it saw the fault."""
    writer = Writer(port, uuid4(), user, "token")
    with load([writer]):
        deadline = time.monotonic() + 10
        while writer.heard.statuses.total() < 14 and time.monotonic() < deadline:
            time.sleep(0.05)
    return outcome([writer])


@pytest.mark.parametrize("store", [""], indirect=True)
def test_store_that_keeps_everything(store: tuple[int, UUID]) -> None:
    got = worked(*store)
    assert (got.lost, got.wrong, got.failed) == (0, 0, {})
    assert got.acknowledged >= 7


@pytest.mark.parametrize("store", ["forgets"], indirect=True)
def test_lost_write_is_counted(store: tuple[int, UUID]) -> None:
    assert worked(*store).lost > 0


@pytest.mark.parametrize("store", ["mixes up"], indirect=True)
def test_record_of_another_is_counted(store: tuple[int, UUID]) -> None:
    assert worked(*store).wrong > 0


@pytest.mark.parametrize("store", ["unavailable"], indirect=True)
def test_failed_request_is_no_lost_write(store: tuple[int, UUID]) -> None:
    got = worked(*store)
    assert got.failed == {"503": 3}
    assert got.lost == 0


@pytest.mark.parametrize(
    ("name", "change", "mended", "met"),
    [
        ("primary_crashes", {}, True, True),
        ("primary_crashes", {"failed": {"503": 3}}, True, True),
        ("primary_crashes", {"lost": 1}, True, False),
        ("primary_crashes", {"wrong": 1}, True, False),
        ("primary_crashes", {"longest_gap": 16.0}, True, False),
        ("primary_crashes", {}, False, False),
        ("etcd_member_is_lost", {"failed": {"503": 1}}, True, False),
    ],
)
def test_what_is_wanted(name: str, change: dict[str, Any], mended: bool, met: bool) -> None:
    bad = Outcome(**{**GOOD.__dict__, **change})
    assert Result(name, [GOOD, bad], mended).met is met

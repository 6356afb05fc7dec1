"""What a drill counts: writes that were acknowledged and are gone, records of others, and the time without a success."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest

from bench.world import BenchTenant
from drill.drills import DRILLS
from drill.faults.connections import Reader
from drill.load import Outcome, Writer, load, outcome
from drill.report import COLUMNS, Result
from drill.sustained import Measured, Sample, lines, met, verdict
from drill.webhooks import missing, out_of_order, receiving

GOOD = Outcome(requests=10, failed={}, acknowledged=5, lost=0, wrong=0, longest_gap=0.5)


class Store(BaseHTTPRequestHandler):
    """Stores one record; `fault` says how it misbehaves from the third write on."""

    protocol_version = "HTTP/1.1"
    fault: ClassVar[str] = ""
    record: ClassVar[dict[str, str]] = {}
    writes: ClassVar[int] = 0
    names: ClassVar[list[str]] = []

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
        if fault == "is restored" and self.writes == 3:
            # As it was after the first write.
            kind.record = self.record | {"name": self.names[0]}
            self._respond(503, {})
            return
        kind.names = [*self.names, sent["name"]]
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
        "Faulty",
        (Store,),
        {"fault": request.param, "record": {"id": str(user), "name": "Person 1"}, "writes": 0, "names": []},
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_address[1], user
        server.shutdown()


def worked(port: int, user: UUID, *, restored: bool = False) -> Outcome:
    """What a writer has got after it saw the fault."""
    writer = Writer(port, uuid4(), user, "token")
    if restored:
        writer.backed_up = {f"{user} 1"}
        writer.begin_restore()
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


@pytest.mark.parametrize("store", ["is restored"], indirect=True)
def test_write_before_a_restore_is_no_lost_write(store: tuple[int, UUID]) -> None:
    assert worked(*store, restored=True).lost == 0


@pytest.mark.parametrize("store", ["is restored"], indirect=True)
def test_store_that_goes_back_by_itself_loses_writes(store: tuple[int, UUID]) -> None:
    assert worked(*store).lost > 0


def test_backup_has_names_sent_while_it_ran() -> None:
    writer = Writer(1, uuid4(), uuid4(), "token")
    writer.possible = {"before"}
    writer.begin_backup()
    # Nothing listens there.
    writer.take_turn(1)
    writer.end_backup()
    writer.take_turn(2)
    assert writer.backed_up == {"before", f"{writer.user} 1"}


@pytest.mark.parametrize("store", ["unavailable"], indirect=True)
def test_requests_of_other_tenants_are_counted_apart(store: tuple[int, UUID]) -> None:
    port, user = store
    writers = [Writer(port, uuid4(), user, "token") for _ in range(2)]
    writers[0].heard.statuses["503"] = 7
    writers[1].heard.statuses["503"] = 2
    writers[1].heard.longest_gap = 1.5
    got = outcome(writers, [writers[0].tenant])
    assert (got.failed, got.others_failed, got.others_gap) == ({"503": 9}, 2, 1.5)


@pytest.mark.parametrize(
    ("arrived", "lacks", "late"),
    [
        (["a", "b", "c"], 0, 0),
        (["a", "unacknowledged", "b", "c"], 0, 0),
        (["a", "c"], 1, 0),
        ([], 3, 0),
        (["b", "a", "c"], 0, 1),
        (["c", "a", "b"], 0, 2),
    ],
)
def test_webhooks_are_compared_with_changes(arrived: list[str], lacks: int, late: int) -> None:
    assert missing(["a", "b", "c"], arrived) == lacks
    assert out_of_order(["a", "b", "c"], arrived) == late


def test_receiver_keeps_a_repeated_message_once() -> None:
    with receiving() as receiver:
        for message, name in (("m1", "a"), ("m2", "b"), ("m1", "a")):
            connection = HTTPConnection("127.0.0.1", receiver.server.server_port)
            body = json.dumps({"type": "end_user.updated", "data": {"user_id": "u", "name": name}})
            connection.request("POST", "/", body, {"webhook-id": message})
            assert connection.getresponse().status == 204
            connection.close()
        assert receiver.names("u") == ["a", "b"]
        assert receiver.names("other") == []


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
        ("tenant_is_moved", {"failed": {"503": 3}, "longest_gap": 9.0}, True, True),
        ("tenant_is_moved", {"failed": {"503": 3}, "others_failed": 1}, True, False),
        ("tenant_is_moved", {"others_gap": 3.5}, True, False),
        ("tenant_database_is_slow", {"slowest": 2.5}, True, True),
        ("tenant_database_is_slow", {"slowest": 3.5}, True, False),
        ("database_is_stuck", {"failed": {"503": 3}, "longest_gap": 140.0}, True, True),
        ("database_is_stuck", {"others_failed": 1}, True, False),
        ("all_tenants_are_swept", {"failed": {"503": 1}}, True, False),
        ("installation_is_copied", {"failed": {"503": 90}}, True, True),
        ("installation_is_copied", {"wrong": 1}, True, False),
    ],
)
def test_what_is_wanted(name: str, change: dict[str, Any], mended: bool, met: bool) -> None:
    bad = Outcome(**{**GOOD.__dict__, **change})
    assert Result(name, [GOOD, bad], mended).met is met


def test_chosen_length_of_a_fault_is_in_the_table() -> None:
    assert "is away for 60 s" in Result("mail_server_is_away", [GOOD]).cells()[0]
    assert "is away for 600 s" in Result("mail_server_is_away", [GOOD], seconds=600).cells()[0]


def test_most_counted_connections_are_in_the_table() -> None:
    runs = [replace(GOOD, connections=number, connection_limit=4) for number in (3, 2)]
    assert "most connections 3 of 4" in Result("all_tenants_are_swept", runs).cells()[7]
    assert "most connections" not in Result("primary_crashes", [GOOD]).cells()[7]


@pytest.mark.parametrize("store", ["", "mixes up"], indirect=True)
def test_reader_compares_the_record(store: tuple[int, UUID], request: pytest.FixtureRequest) -> None:
    port, user = store
    tenant = BenchTenant(uuid4(), uuid4(), "token", (user,), ())
    reader = Reader(port, [tenant], pause=0.01)
    reader.take_turn(1)
    assert (reader.heard.statuses, reader.heard.wrong) == ({"200": 1}, 0)
    for _ in range(3):
        reader.call("PUT", f"/uflow/user/enduser/{tenant.tenant_id}/{user}", {"name": "changed"})
    reader.take_turn(2)
    assert reader.heard.wrong == (request.node.callspec.params["store"] == "mixes up")


def test_skipped_drill_has_its_reason_in_the_table() -> None:
    result = Result("disk_is_full", [], skipped="needs root")
    assert result.met
    assert "skipped: needs root" in result.cells()
    assert len(result.cells()) == len(COLUMNS)


def test_every_row_has_all_columns() -> None:
    for drill in DRILLS:
        assert len(Result(drill.name, [GOOD]).cells()) == len(COLUMNS)


@pytest.mark.parametrize(
    ("values", "flat"),
    [
        ([100.0] * 12, True),
        ([100.0, 110.0] * 6, True),
        ([100.0 + 3 * number for number in range(12)], False),
        # A cache that has filled.
        ([50.0] * 2 + [100.0] * 12, True),
        ([200.0, 150.0, 100.0] * 4, True),
    ],
)
def test_growth_is_seen_after_the_warm_up(values: list[float], flat: bool) -> None:
    samples = [Sample(15.0 * place, {"memory (MiB)": value}) for place, value in enumerate(values)]
    assert verdict(samples, "memory (MiB)", warm_up=30.0)[1] is flat


def test_short_load_has_no_verdict() -> None:
    assert verdict([Sample(1.0, {"threads": 1.0})], "threads") == ("too short for a verdict", True)


def test_failed_request_of_the_load_is_not_met() -> None:
    measured = Measured()
    measured.add("login", Counter({"200": 1}), 0.25)
    assert met(measured)
    measured.add("totp", Counter({"200": 1, "503": 1}), 0.5)
    assert not met(measured)
    about = {"began": "today", "commit": "c", "cores": 2, "postgresql": "15"}
    section = lines(measured, 1, about)
    assert "| login | 1 | 0 | 250 | 250 | 250 |" in section
    assert "| all | 2 | 1 × 503 | 500 | 500 | 500 |" in section

"""Requests during a drill: each writer changes a record over the API, reads it back, and keeps what was acknowledged."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any
from uuid import UUID, uuid4

# Eight writers with this pause make about 60 requests a second.
PAUSE_SECONDS = 0.2
TIMEOUT_SECONDS = 15.0
# One of so many turns also creates a record in the global database.
CREATES_EVERY = 10


@dataclass
class Heard:
    """What one writer has got."""

    statuses: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    # Reads that lacked an acknowledged write, and reads of another record.
    lost: int = 0
    wrong: int = 0
    # Between two acknowledged changes, in seconds.
    longest_gap: float = 0.0


class Writer(threading.Thread):
    """Changes the name of one end user, and creates services of its tenant."""

    def __init__(self, port: int, tenant: UUID, user: UUID, token: str) -> None:
        super().__init__(daemon=True)
        self.port, self.user = port, user
        self.path = f"/uflow/user/enduser/{tenant}/{user}"
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.heard = Heard()
        self.connection: HTTPConnection | None = None
        self.ended = threading.Event()
        # The names that the record may have: the last acknowledged one, and those that were sent since.
        self.possible: set[str] = set()
        self.services: list[str] = []
        self.last_change = time.monotonic()

    def run(self) -> None:
        turn = 0
        while not self.ended.is_set():
            turn += 1
            self._change(f"{self.user} {turn}")
            self._compare()
            if turn % CREATES_EVERY == 0:
                self._create()
            self.ended.wait(PAUSE_SECONDS)

    def check(self) -> None:
        """Compare what was acknowledged with what is there, after the drill."""
        self._end_gap()
        self._compare()
        for service in self.services:
            status, _ = self._call("GET", f"/exsvc/api/v1/services/{service}")
            self.heard.lost += status != 200

    def _change(self, name: str) -> None:
        self.possible.add(name)
        status, _ = self._call("PUT", self.path, {"name": name})
        if status == 200:
            self.heard.acknowledged += 1
            self.possible = {name}
            self._end_gap()

    def _end_gap(self) -> None:
        now = time.monotonic()
        self.heard.longest_gap = max(self.heard.longest_gap, now - self.last_change)
        self.last_change = now

    def _compare(self) -> None:
        status, body = self._call("GET", self.path)
        if status == 200:
            name = str(body.get("name"))
            self.heard.wrong += body.get("id") != str(self.user) or not name.startswith((str(self.user), "Person "))
            if self.heard.acknowledged and name not in self.possible:
                self.heard.lost += 1

    def _create(self) -> None:
        body = {"name": f"Drill {uuid4()}", "type": "crm", "base_url": "https://crm.example.com"}
        status, made = self._call("POST", "/exsvc/api/v1/services", body)
        if status == 201:
            self.heard.acknowledged += 1
            self.services.append(str(made["id"]))

    def _call(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        try:
            if self.connection is None:
                self.connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS)
            self.connection.request(method, path, json.dumps(body) if body is not None else None, self.headers)
            response = self.connection.getresponse()
            said = response.read()
        except (OSError, HTTPException) as lost:
            if self.connection is not None:
                self.connection.close()
            self.connection = None
            self.heard.statuses[type(lost).__name__] += 1
            return 0, {}
        self.heard.statuses[str(response.status)] += 1
        return response.status, json.loads(said) if response.status < 300 else {}


@dataclass(frozen=True)
class Outcome:
    """What all writers together have got. Times are in seconds."""

    requests: int
    failed: dict[str, int]
    acknowledged: int
    lost: int
    wrong: int
    # The longest that a writer went without an acknowledged change.
    longest_gap: float


@contextmanager
def load(writers: list[Writer]) -> Iterator[None]:
    """Let them work during the block; then compare."""
    for writer in writers:
        writer.last_change = time.monotonic()
        writer.start()
    try:
        yield
    finally:
        for writer in writers:
            writer.ended.set()
        for writer in writers:
            writer.join(3 * TIMEOUT_SECONDS)
    for writer in writers:
        writer.check()


def outcome(writers: list[Writer]) -> Outcome:
    """Add up what the writers have got."""
    heard = [writer.heard for writer in writers]
    statuses = sum((each.statuses for each in heard), Counter[str]())
    return Outcome(
        requests=statuses.total(),
        failed={status: number for status, number in sorted(statuses.items()) if not status.startswith("2")},
        acknowledged=sum(each.acknowledged for each in heard),
        lost=sum(each.lost for each in heard),
        wrong=sum(each.wrong for each in heard),
        longest_gap=max(each.longest_gap for each in heard),
    )

"""Requests during a drill: each writer changes a record over the API, reads it back, and keeps what was acknowledged."""

from __future__ import annotations

import json
import select
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
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
    # The longest that a response took, in seconds.
    slowest: float = 0.0


class Client(threading.Thread):
    """Sends requests of one tenant over one connection, turn after turn until it is told to end."""

    pause = PAUSE_SECONDS
    # Before the first turn.
    delay = 0.0
    # Without it, each request has a connection of its own: nginx closes idle ones when it is reloaded, and a request that is
    # sent just then is lost.
    keeps_connection = True

    def __init__(self, port: int, tenant: UUID) -> None:
        super().__init__(daemon=True)
        self.port, self.tenant = port, tenant
        self.headers = {"Content-Type": "application/json"}
        self.heard = Heard()
        self.connection: HTTPConnection | None = None
        self.ended = threading.Event()
        self.last_change = time.monotonic()

    def run(self) -> None:
        turn = 0
        self.ended.wait(self.delay)
        while not self.ended.is_set():
            turn += 1
            self.take_turn(turn)
            self.ended.wait(self.pause)
        self.finish()

    def finish(self) -> None:
        """Note what the end of the load ends."""

    def take_turn(self, turn: int) -> None:
        raise NotImplementedError

    def check(self) -> None:
        """Compare what was acknowledged with what is there, after the drill."""

    def call(self, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, dict[str, Any]]:
        """Return status and body of a response; 0 and nothing if there was none."""
        headers = self.headers if token is None else {**self.headers, "Authorization": f"Bearer {token}"}
        began = time.monotonic()
        try:
            if self.connection is None or _is_closed(self.connection):
                self._close()
                self.connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS)
            self.connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = self.connection.getresponse()
            said = response.read()
        except (OSError, HTTPException) as lost:
            self._close()
            self.heard.statuses[type(lost).__name__] += 1
            return 0, {}
        finally:
            self.heard.slowest = max(self.heard.slowest, time.monotonic() - began)
            if not self.keeps_connection:
                self._close()
        self.heard.statuses[_status_with_code(response.status, said)] += 1
        return response.status, json.loads(said) if said and response.status < 300 else {}

    def _close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None


def _status_with_code(status: int, body: bytes) -> str:
    """Return the status; of an error of the platform's servers with its code, which tells the cause."""
    if status < 500:
        return str(status)
    try:
        return f"{status} {json.loads(body)['code']}"
    except (ValueError, KeyError, TypeError):
        return str(status)


def _is_closed(connection: HTTPConnection) -> bool:
    """Whether the server has closed an idle connection. Every pool of an HTTP client looks before it uses one again."""
    return connection.sock is not None and bool(select.select([connection.sock], [], [], 0)[0])


class Writer(Client):
    """Changes the name of one end user, and creates services of its tenant."""

    def __init__(self, port: int, tenant: UUID, user: UUID, token: str) -> None:
        super().__init__(port, tenant)
        self.user = user
        self.path = f"/uflow/user/enduser/{tenant}/{user}"
        self.headers |= {"Authorization": f"Bearer {token}"}
        # The names that the record may have: the last acknowledged one, and those that were sent since.
        self.possible: set[str] = set()
        # All acknowledged names, in their order.
        self.names: list[str] = []
        # The names that a backup may have, and whether it is being restored.
        self.backed_up: set[str] = set()
        self.backing_up = self.restoring = False
        self.services: list[str] = []

    def take_turn(self, turn: int) -> None:
        self._change(f"{self.user} {turn}")
        self._compare()
        if turn % CREATES_EVERY == 0:
            self._create()

    def finish(self) -> None:
        self._end_gap()

    def begin_backup(self) -> None:
        """Keep the names that a backup which begins now may have."""
        self.backing_up = True
        self.backed_up |= self.possible

    def end_backup(self) -> None:
        """A backup that has ended has none of the names that are sent from now on."""
        self.backing_up = False

    def begin_restore(self) -> None:
        """From now on, the record may have a name of the backup: what was acknowledged after it is lost by definition."""
        self.restoring = True

    def end_restore(self) -> None:
        """The next acknowledged change is in the restored database."""
        self.restoring = False

    def check(self) -> None:
        self._compare()
        for service in self.services:
            status, _ = self.call("GET", f"/exsvc/api/v1/services/{service}")
            self.heard.lost += status != 200

    def _change(self, name: str) -> None:
        self.possible.add(name)
        if self.backing_up:
            self.backed_up.add(name)
        restoring = self.restoring
        status, _ = self.call("PUT", self.path, {"name": name})
        if status == 200:
            self.heard.acknowledged += 1
            self.names.append(name)
            self.possible = {name} | (self.backed_up if restoring else set())
            self._end_gap()

    def _end_gap(self) -> None:
        now = time.monotonic()
        self.heard.longest_gap = max(self.heard.longest_gap, now - self.last_change)
        self.last_change = now

    def _compare(self) -> None:
        # Also those of a restore that began since the last change.
        possible = self.possible | (self.backed_up if self.restoring else set())
        status, body = self.call("GET", self.path)
        if status == 200:
            name = str(body.get("name"))
            self.heard.wrong += body.get("id") != str(self.user) or not name.startswith((str(self.user), "Person "))
            if self.heard.acknowledged and name not in possible:
                self.heard.lost += 1

    def _create(self) -> None:
        body = {"name": f"Drill {uuid4()}", "type": "crm", "base_url": "https://crm.example.com"}
        status, made = self.call("POST", "/exsvc/api/v1/services", body)
        if status == 201:
            self.heard.acknowledged += 1
            self.services.append(str(made["id"]))


@dataclass(frozen=True)
class Outcome:
    """What all clients together have got. Times are in seconds."""

    requests: int
    failed: dict[str, int]
    acknowledged: int
    lost: int
    wrong: int
    # The longest that a writer went without an acknowledged change.
    longest_gap: float
    # Of the tenants that the fault is not about.
    others_failed: int = 0
    others_gap: float = 0.0
    slowest: float = 0.0
    # The most connections that were counted, and how many there may be; 0 in drills that count none.
    connections: int = 0
    connection_limit: int = 0


@contextmanager
def load(clients: Sequence[Client]) -> Iterator[None]:
    """Let them work during the block; then compare."""
    for client in clients:
        client.last_change = time.monotonic()
        client.start()
    try:
        yield
    finally:
        for client in clients:
            client.ended.set()
        for client in clients:
            client.join(3 * TIMEOUT_SECONDS)
    for client in clients:
        client.check()


def outcome(clients: Sequence[Client], about: Collection[UUID] = ()) -> Outcome:
    """Add up what the clients have got. `about`: the tenants that the fault is about; none means all."""
    heard = [client.heard for client in clients]
    others = [client.heard for client in clients if about and client.tenant not in about]
    statuses = sum((each.statuses for each in heard), Counter[str]())
    return Outcome(
        requests=statuses.total(),
        failed=_failed(heard),
        acknowledged=sum(each.acknowledged for each in heard),
        lost=sum(each.lost for each in heard),
        wrong=sum(each.wrong for each in heard),
        longest_gap=max((each.longest_gap for each in heard), default=0.0),
        others_failed=sum(_failed(others).values()),
        others_gap=max((each.longest_gap for each in others), default=0.0),
        slowest=max((each.slowest for each in heard), default=0.0),
    )


def _failed(heard: Iterable[Heard]) -> dict[str, int]:
    statuses = sum((each.statuses for each in heard), Counter[str]())
    return {status: number for status, number in sorted(statuses.items()) if not status.startswith("2")}

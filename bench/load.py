"""A keep-alive HTTP/1.1 client on raw sockets, in a process of its own. Reads its job from standard input.

It does as little as it can, since it shares the cores with the server: requests are bytes prepared beforehand, responses are
counted by their Content-Length. With `per_second` it sends at fixed times regardless of the responses, and a response's time
counts from when its request was due, so that a server that stalls is not spared the requests of the stall. With `renewal` each
connection uses the refresh token of the response before.
"""

from __future__ import annotations

import json
import re
import select
import socket
import sys
import time
from collections import deque
from typing import Any

LONGEST_WAIT = 30.0
_REFRESH_TOKEN = re.compile(rb'"refresh_token": ?"([^"]+)"')


class Line:
    """One connection: idle, or waiting for the rest of a response."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=LONGEST_WAIT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = bytearray()
        self.due = 0.0
        self.next: bytes | None = None

    def send(self, request: bytes) -> None:
        """Send a request; the response before it is forgotten."""
        self.received.clear()
        self.socket.sendall(request)

    def renew(self, head: str, body: str) -> None:
        """Make the next request of the refresh token in the received response."""
        found = _REFRESH_TOKEN.search(self.received)
        if not found:
            raise ConnectionError(f"A response has no refresh token: {self.received[-300:]!r}")
        content = body.replace("{token}", found[1].decode("ascii"))
        self.next = f"{head}Content-Length: {len(content)}\r\n\r\n{content}".encode("ascii")

    def status_when_whole(self) -> int | None:
        """Read received bytes; return the status of the response once it is complete."""
        piece = self.socket.recv(262_144)
        if not piece:
            raise ConnectionError("The server closed a connection.")
        self.received += piece
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(self.received[:end]).lower()
        _, found, length = head.partition(b"content-length:")
        if not found:
            raise ConnectionError("A response has no Content-Length.")
        if len(self.received) < end + 4 + int(length.split(b"\r\n", 1)[0]):
            return None
        return int(head[9:12])


def run(
    *,
    port: int,
    requests: list[bytes],
    connections: int,
    seconds: float,
    per_second: float | None = None,
    once: bool = False,
    renewal: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Send the requests in turn for `seconds`, or each of them `once`.

    With `renewal`, the head and body of a request for a refresh, `requests` has the first one of each connection.

    Returns answers (their number), seconds, statuses and the times of the responses in ms.
    """
    lines = {}
    poll = select.poll()
    for _ in range(connections):
        line = Line(port)
        lines[line.socket.fileno()] = line
        poll.register(line.socket, select.POLLIN)
        time.sleep(0.002)  # one after the other, so that they are spread over the workers
    idle = deque(lines.values())
    times: list[float] = []
    statuses: dict[int, int] = {}
    turn, number = 0, len(requests)
    began = now = time.perf_counter()
    ends = began + (LONGEST_WAIT if once else seconds)
    due = began
    while now < ends or len(idle) < connections:
        while idle and now < ends and (per_second is None or due <= now):
            line = idle.popleft()
            line.due = now if per_second is None else due
            due += 0.0 if per_second is None else 1 / per_second
            line.send(line.next or requests[turn % number])
            turn += 1
            if once and turn == number:
                ends = now
        wait = LONGEST_WAIT if per_second is None or not idle or now >= ends else max(0.0, min(due, ends) - now)
        ready = poll.poll(wait * 1000)
        if not ready and wait == LONGEST_WAIT:
            raise TimeoutError("The server does not respond.")
        now = time.perf_counter()
        for descriptor, _ in ready:
            line = lines[descriptor]
            status = line.status_when_whole()
            if status is not None:
                times.append(now - line.due)
                statuses[status] = statuses.get(status, 0) + 1
                if renewal:
                    line.renew(*renewal)
                idle.append(line)
    times.sort()
    return {
        "answers": len(times),
        "seconds": now - began,
        "statuses": statuses,
        "p50_ms": quantile(times, 0.50) * 1000,
        "p95_ms": quantile(times, 0.95) * 1000,
        "p99_ms": quantile(times, 0.99) * 1000,
        "longest_ms": quantile(times, 1.0) * 1000,
    }


def quantile(ordered: list[float], share: float) -> float:
    """Return the value that this share of the ordered values does not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def main() -> None:
    job = json.load(sys.stdin)
    del job["journeys"]
    job["requests"] = [text.encode("latin-1") for text in job["requests"]]
    json.dump(run(**job), sys.stdout)


if __name__ == "__main__":
    main()

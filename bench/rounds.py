"""Rounds: measure every subject for a short time, repeatedly, so that disturbances of the machine affect all of them."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bench.home import ROOT, Home
from bench.servers import Server, postgres_cpu_seconds

CONNECTIONS = 8
WARM_UP_SECONDS = 0.3


class WrongAnswers(Exception):
    """A subject returned another response than the measured one."""


@dataclass(frozen=True)
class Subject:
    """Load of a measurement: requests in turn over some connections to one server."""

    name: str
    server: Server
    requests: Sequence[bytes]
    connections: int = CONNECTIONS
    expects: int = 200
    # At fixed times instead of as fast as possible.
    per_second: float | None = None
    # Each request is sent once, regardless of the time.
    once: bool = False
    # Head and body of the requests after the first one of each connection: see bench/load.py.
    renewal: tuple[str, str] | None = None
    # Makes the requests of each round, instead of `requests`.
    prepare: Callable[[], Sequence[bytes]] | None = None
    # Sign-ins at hosted pages instead of requests: see bench/journey.py.
    journeys: Sequence[dict[str, str]] = ()

    def prepared(self) -> Subject:
        """Return the subject with the requests of a round."""
        return replace(self, requests=self.prepare()) if self.prepare else self


@dataclass(frozen=True)
class Sample:
    """One subject in one round. CPU in microseconds for each request."""

    answers: int
    per_second: float
    server_us: float
    postgres_us: float
    p50_ms: float
    p99_ms: float
    statuses: dict[str, int] = field(default_factory=dict)
    # More than one for a sign-in at hosted pages.
    requests_of_each: float = 1.0


def load(subject: Subject, seconds: float) -> subprocess.Popen[str]:
    """Start a client process that loads the subject; `answers_of` waits for it."""
    client = subprocess.Popen(
        [sys.executable, "-P", "-m", "bench.journey" if subject.journeys else "bench.load"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    job = {
        "port": subject.server.port,
        "requests": [request.decode("latin-1") for request in subject.requests],
        "connections": subject.connections,
        "seconds": seconds,
        "per_second": subject.per_second,
        "once": subject.once,
        "renewal": subject.renewal,
        "journeys": subject.journeys,
    }
    assert client.stdin is not None  # stdin and stdout are pipes
    json.dump(job, client.stdin)
    client.stdin.close()
    return client


def answers_of(client: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the counts of the client process. Raises WrongAnswers if it failed."""
    assert client.stdout is not None  # stdin and stdout are pipes
    text = client.stdout.read()
    if client.wait() != 0:
        raise WrongAnswers("The client process failed.")
    return dict(json.loads(text))


def sample(home: Home, subject: Subject, seconds: float) -> Sample:
    """Load the subject for `seconds`. Raises WrongAnswers for any status but the measured one."""
    server, postgres = subject.server.cpu_seconds(), postgres_cpu_seconds(home)
    counted = answers_of(load(subject, seconds))
    server, postgres = subject.server.cpu_seconds() - server, postgres_cpu_seconds(home) - postgres
    answers = counted["answers"]
    if set(counted["statuses"]) != {str(subject.expects)}:
        raise WrongAnswers(f"{subject.name} answered {counted['statuses']}.")
    return Sample(
        answers=answers,
        per_second=answers / counted["seconds"],
        server_us=server / answers * 1e6,
        postgres_us=postgres / answers * 1e6,
        p50_ms=counted["p50_ms"],
        p99_ms=counted["p99_ms"],
        statuses=counted["statuses"],
        requests_of_each=counted.get("requests_of_each", 1.0),
    )


def side_by_side(
    home: Home, subjects: Sequence[Subject], *, rounds: int, seconds: float, say: Callable[[str], None]
) -> dict[str, list[Sample]]:
    """Return the samples of each subject, one for each round; every second round runs in reverse order."""
    taken: dict[str, list[Sample]] = {subject.name: [] for subject in subjects}
    for number in range(rounds):
        for subject in subjects if number % 2 == 0 else reversed(subjects):
            say(f"round {number + 1} of {rounds}: {subject.name}")
            answers_of(load(subject.prepared(), min(WARM_UP_SECONDS, seconds)))
            taken[subject.name].append(sample(home, subject.prepared(), seconds))
    return taken


def ratio(taken: dict[str, list[Sample]], name: str, to: str, what: str = "per_second") -> float:
    """Return the median over the rounds of the ratio of one subject's value to the other's."""
    pairs = zip(taken[name], taken[to], strict=True)
    # CPU is counted in ticks of 10 ms: a short round may have none.
    return statistics.median(getattr(ours, what) / (getattr(theirs, what) or 1.0) for ours, theirs in pairs)


def middle(samples: Sequence[Sample], what: str = "per_second") -> float:
    """Return the median of a value over the rounds."""
    return statistics.median(getattr(one, what) for one in samples)

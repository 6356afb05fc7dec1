"""Rounds: every subject for a moment, again and again, so that what disturbs the machine disturbs all of them."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.home import ROOT, Home
from bench.servers import Server, postgres_cpu_seconds

CONNECTIONS = 8
WARM_UP_SECONDS = 0.3


class WrongAnswers(Exception):
    """A subject answered something else than what is measured."""


@dataclass(frozen=True)
class Subject:
    """What is put under load: requests in turn over some connections to one server."""

    name: str
    server: Server
    requests: Sequence[bytes]
    connections: int = CONNECTIONS
    expects: int = 200
    # At fixed times instead of as fast as it answers.
    per_second: float | None = None
    # Each request is sent once, however long that takes.
    once: bool = False


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


def load(subject: Subject, seconds: float) -> subprocess.Popen[str]:
    """A client process that puts the subject under load; `answers_of` waits for it."""
    client = subprocess.Popen(
        [sys.executable, "-P", "-m", "bench.load"],
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
    }
    assert client.stdin is not None  # a pipe, as asked for
    json.dump(job, client.stdin)
    client.stdin.close()
    return client


def answers_of(client: subprocess.Popen[str]) -> dict[str, Any]:
    """What the client process counted. Raises WrongAnswers when it failed."""
    assert client.stdout is not None  # a pipe, as asked for
    text = client.stdout.read()
    if client.wait() != 0:
        raise WrongAnswers("The client process failed.")
    return dict(json.loads(text))


def sample(home: Home, subject: Subject, seconds: float) -> Sample:
    """Load the subject for so long. Raises WrongAnswers for any status but the one that is measured."""
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
    )


def side_by_side(
    home: Home, subjects: Sequence[Subject], *, rounds: int, seconds: float, say: Callable[[str], None]
) -> dict[str, list[Sample]]:
    """The samples of each subject, one for each round; every second round goes backwards."""
    taken: dict[str, list[Sample]] = {subject.name: [] for subject in subjects}
    for number in range(rounds):
        for subject in subjects if number % 2 == 0 else reversed(subjects):
            say(f"round {number + 1} of {rounds}: {subject.name}")
            answers_of(load(subject, min(WARM_UP_SECONDS, seconds)))
            taken[subject.name].append(sample(home, subject, seconds))
    return taken


def ratio(taken: dict[str, list[Sample]], name: str, to: str, what: str = "per_second") -> float:
    """The median over the rounds of one subject's figure divided by the other's in the same round."""
    pairs = zip(taken[name], taken[to], strict=True)
    # CPU is counted in ticks of 10 ms: a round of some tenths of a second may have none.
    return statistics.median(getattr(ours, what) / (getattr(theirs, what) or 1.0) for ours, theirs in pairs)


def middle(samples: Sequence[Sample], what: str = "per_second") -> float:
    """The median of a figure over the rounds."""
    return statistics.median(getattr(one, what) for one in samples)

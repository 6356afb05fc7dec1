"""One run: its length, the sizes of its data, and its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.home import Home
from bench.rounds import Sample, Subject, side_by_side


@dataclass(frozen=True)
class Sizes:
    """Numbers of users, tenants and rows in the measured data."""

    users: int = 1000
    tenants: int = 500
    users_of_each: int = 20
    steps: tuple[int, ...] = (1, 100, 1000)
    fleet: int = 1000
    known: int = 10_000
    imported: int = 100_000
    crowd: int = 1_000_000
    # How often each list is read; the faster time counts.
    crowd_tries: int = 2
    moved: int = 20_000
    # Of the curves.
    threads: tuple[int, ...] = (2, 4, 8, 16)
    tenants_read: tuple[int, ...] = (1, 10, 100, 500)
    users_read: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    # Beside Keycloak: tenants and realms with users that requests visit, and of which one more is created.
    issuers: int = 21
    users_of_issuer: int = 100
    realms: tuple[int, ...] = (1, 100)


SMOKE = Sizes(
    users=30,
    tenants=3,
    users_of_each=2,
    steps=(1, 3),
    fleet=5,
    known=20,
    imported=300,
    crowd=3000,
    crowd_tries=1,
    moved=100,
    threads=(2,),
    tenants_read=(1, 3),
    users_read=(30, 3000),
    issuers=2,
    users_of_issuer=20,
    realms=(1, 4),
)


@dataclass(frozen=True)
class Row:
    """One measured ratio with its target. `beside` holds explanations that do not count: CPU, spread."""

    target: str
    what: str
    ours: str
    against: str
    ratio: float
    wanted: str
    met: bool
    beside: str = ""
    measurement: str = ""


@dataclass
class Run:
    """Arguments of a measurement, which stores its samples in `raw`."""

    home: Home
    rounds: int
    seconds: float
    sizes: Sizes
    say: Callable[[str], None]
    raw: dict[str, Any] = field(default_factory=dict)

    def compare(self, name: str, subjects: Sequence[Subject]) -> dict[str, list[Sample]]:
        """Measure the subjects side by side and keep every sample."""
        taken = side_by_side(self.home, subjects, rounds=self.rounds, seconds=self.seconds, say=self.say)
        self.raw[name] = {subject: [asdict(one) for one in samples] for subject, samples in taken.items()}
        return taken

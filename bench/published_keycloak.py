"""What the documentation shows of `bin/bench keycloak` beyond the requests: memory, start, and one tenant or realm more."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any, Final

PROGRAMS: Final = ("platform", "keycloak")
MEMORY, GROWTH = "keycloak_memory", "keycloak_growth"
MEASUREMENT: Final = "keycloak"
_PARTS: Final = ("server", "postgres", "valkey")

# A name, and the value of each program.
Line = tuple[str, dict[str, str]]


def lines(samples: Mapping[str, Any]) -> list[Line]:
    """Return a line for memory, and two for each number of tenants: one more, and a start. Empty before the first run."""
    found: list[Line] = []
    if MEMORY in samples:
        memory = {name: sum(samples[MEMORY][name][part] for part in _PARTS) for name in PROGRAMS}
        what = "memory of the server, its backends of PostgreSQL and Valkey"
        found.append((what, {name: f"{value:,.0f} MiB" for name, value in memory.items()}))
    for number, grown in samples.get(GROWTH, {}).items():
        new = {name: f"{median(grown[name]['new_ms']):,.0f} ms" for name in PROGRAMS}
        start = {name: f"{median(grown[name]['start_s']):.1f} s" for name in PROGRAMS}
        found += [(f"new tenant or realm, by the API, with {number}", new), (f"start with {number} of them", start)]
    return found


def sentence(samples: Mapping[str, Any]) -> str:
    """Return how many requests a hosted sign-in has, and the number of backends; empty before the first run."""
    if MEMORY not in samples:
        return "Not measured yet: `bin/bench keycloak`.\n"
    requests = {name: samples["keycloak_sign_in"][name][0]["requests_of_each"] for name in PROGRAMS}
    backends = {name: samples[MEMORY][name]["backends"] for name in PROGRAMS}
    return (
        f"A hosted sign-in is {requests['platform']:.0f} requests here and {requests['keycloak']:.0f} at Keycloak. After"
        f" the load {backends['platform']} backends of PostgreSQL were open for the platform and {backends['keycloak']} for"
        " Keycloak.\n"
    )

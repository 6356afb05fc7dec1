"""Target 12: the cost of counting a request with django-ratelimit, on Django's Redis cache and on the platform's."""

from __future__ import annotations

import statistics

from bench import servers, world
from bench.rounds import Subject
from bench.run import Row, Run

KINDS = ("none", "stock", "ours")


def measure(run: Run) -> list[Row]:
    """Measure the server's CPU of one view with each limit, minus that of the view without one."""
    with (
        servers.peer(run.home, "stock_ratelimit", PEER_LIMIT="none") as none,
        servers.peer(run.home, "stock_ratelimit", PEER_LIMIT="stock") as stock,
        servers.peer(run.home, "stock_ratelimit", PEER_LIMIT="ours") as ours,
    ):
        subjects = [Subject(name, one, [world.get("/")]) for name, one in zip(KINDS, (none, stock, ours), strict=True)]
        taken = run.compare("ratelimit", subjects)
    stocks, own = (
        [
            with_limit.server_us - without.server_us
            for with_limit, without in zip(taken[name], taken["none"], strict=True)
        ]
        for name in ("stock", "ours")
    )
    found = statistics.median(mine / (theirs or 1.0) for mine, theirs in zip(own, stocks, strict=True))
    return [
        Row(
            "12",
            "counting a request for a limit",
            ours=f"+{statistics.median(own):.0f} µs",
            against=f"stock on RedisCache: +{statistics.median(stocks):.0f} µs",
            ratio=found,
            wanted="≤ 0.5",
            met=found <= 0.5,
            beside="server CPU over the same view without a limit",
        )
    ]

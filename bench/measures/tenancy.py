"""Target 3: reads of a random tenant of many against reads of one tenant, on the same server, a `tenant_worker` beside it.

`bin/bench served` measures the same with the connections that bin/serve allows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from bench import servers, world
from bench.measures.reads import cost
from bench.rounds import Subject, middle, ratio, sample
from bench.run import Row, Run

# Until each worker has met every tenant often enough: a connection is opened once per tenant and worker, and PostgreSQL
# keeps the plan of a statement from its sixth run on a connection on.
WARM_UP_SECONDS = 20.0


def measure(run: Run) -> list[Row]:
    """The same read, over all tenants in random order and over one, with a connection to each."""
    tenants = world.tenants_with_users(run.sizes.tenants, run.sizes.users_of_each, run.say)
    many, one = (random_reads(some, run.sizes.users_of_each) for some in (tenants, tenants[:1]))
    roomy = str(run.sizes.tenants + 20)
    with (
        servers.platform(run.home, "roomy", TENANT_CONNECTION_BUDGET=roomy) as spacious,
        servers.command(run.home, "tenant_worker"),
    ):
        everywhere = Subject("many", spacious, many)
        meet_every_tenant(run, everywhere)
        taken = run.compare("tenants", [everywhere, Subject("one", spacious, one)])
    speed, cpu = ratio(taken, "many", "one"), ratio(taken, "many", "one", "server_us")
    return [
        Row(
            "3",
            f"random tenant of {len(tenants)}, budget {roomy}",
            ours=cost(taken["many"]),
            against=f"one tenant: {cost(taken['one'])}",
            ratio=speed,
            wanted="≥ 0.85",
            met=speed >= 0.85,
            beside=f"p99 {middle(taken['many'], 'p99_ms'):.1f} against {middle(taken['one'], 'p99_ms'):.1f} ms",
        ),
        Row(
            "3",
            "the same: CPU of the server",
            ours=f"{middle(taken['many'], 'server_us'):.0f} µs",
            against=f"one tenant: {middle(taken['one'], 'server_us'):.0f} µs",
            ratio=cpu,
            wanted="≤ 1.08",
            met=cpu <= 1.08,
        ),
    ]


def random_reads(tenants: Sequence[world.BenchTenant], users_of_each: int) -> list[bytes]:
    """Return reads of the users of these tenants in random order."""
    walk = [(tenant, user) for tenant in tenants for user in tenant.users[:users_of_each]]
    random.Random(3).shuffle(walk)
    return [world.get(f"/uflow/user/enduser/{tenant.tenant_id}/{user}", tenant.token) for tenant, user in walk]


def meet_every_tenant(run: Run, everywhere: Subject) -> None:
    """Load the server until every worker has a connection to every tenant."""
    run.say("every worker meets every tenant")
    sample(run.home, everywhere, WARM_UP_SECONDS if run.seconds >= 1 else run.seconds)

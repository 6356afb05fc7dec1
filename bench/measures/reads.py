"""Targets 1 and 2: one record and a list of 20, the whole platform against a bare view on the same table."""

from __future__ import annotations

import random
from collections.abc import Sequence

from bench import servers, world
from bench.rounds import Sample, Subject, middle, ratio
from bench.run import Row, Run
from tenants.entering import lookup

LIMIT = 20
PAGES = 20


def measure_one(run: Run) -> list[Row]:
    """Target 1: an authorised GET of one end user by a tenant admin."""
    [tenant] = world.tenants_with_users(1, run.sizes.users, run.say)
    users = random.Random(1).sample(tenant.users, len(tenant.users))
    ours = [world.get(f"/uflow/user/enduser/{tenant.tenant_id}/{user}", tenant.token) for user in users]
    bare = [world.get(f"/users/{user}") for user in users]
    taken = _beside_bare(run, "read", tenant, ours, bare)
    return [_row("1", "GET of one end user, whole stack", taken, least=1.3)]


def measure_list(run: Run) -> list[Row]:
    """Target 2: a page of 20 end users with the total."""
    [tenant] = world.tenants_with_users(1, run.sizes.users, run.say)
    pages = range(1, max(2, min(PAGES, run.sizes.users // LIMIT) + 1))
    path = f"/uflow/user/enduser/list?tenant_id={tenant.tenant_id}&limit={LIMIT}&page="
    ours = [world.get(f"{path}{page}", tenant.token) for page in pages]
    bare = [world.get(f"/users?limit={LIMIT}&page={page}") for page in pages]
    taken = _beside_bare(run, "list", tenant, ours, bare)
    return [_row("2", f"list of {LIMIT} end users of {run.sizes.users}, whole stack", taken, least=2.5)]


def _beside_bare(
    run: Run, name: str, tenant: world.BenchTenant, ours: Sequence[bytes], bare: Sequence[bytes]
) -> dict[str, list[Sample]]:
    database = run.home.with_database(lookup.find(tenant.tenant_id).database)
    with servers.platform(run.home) as platform, servers.peer(run.home, "bare", PEER_DATABASE_URL=database) as peer:
        return run.compare(name, [Subject("platform", platform, ours), Subject("bare", peer, bare)])


def _row(target: str, what: str, taken: dict[str, list[Sample]], *, least: float) -> Row:
    found = ratio(taken, "platform", "bare")
    return Row(
        target,
        what,
        ours=cost(taken["platform"]),
        against=f"bare DRF view: {cost(taken['bare'])}",
        ratio=found,
        wanted=f"≥ {least}",
        met=found >= least,
        beside=f"CPU of both servers {1 / ratio_of_all_cpu(taken, 'platform', 'bare'):.2f}x less",
    )


def cost(samples: Sequence[Sample]) -> str:
    """Format requests per second and CPU per request."""
    return (
        f"{middle(samples):.0f}/s, {middle(samples, 'server_us'):.0f} µs"
        f" + PostgreSQL {middle(samples, 'postgres_us'):.0f} µs"
    )


def ratio_of_all_cpu(taken: dict[str, list[Sample]], name: str, to: str) -> float:
    """Return the ratio of the CPU per request of server and PostgreSQL together."""
    ours, theirs = (middle(taken[one], "server_us") + middle(taken[one], "postgres_us") for one in (name, to))
    return ours / (theirs or 1.0)

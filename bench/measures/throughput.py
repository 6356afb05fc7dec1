"""Curves: the authorized read over threads, over tenants and over the users of a tenant; its p99 beside logins.

That over tenants has a `tenant_worker` beside the server.

No target belongs to them. The threads of a server are those of each of its workers.
"""

from __future__ import annotations

import os
import statistics
from contextlib import ExitStack
from dataclasses import asdict

from django.db import connections

from bench import servers, world
from bench.measures import crowd, signin, tenancy
from bench.measures.reads import cost
from bench.rounds import Sample, Subject, ratio
from bench.run import Row, Run
from bench.servers import Server
from tenants.entering.context import in_tenant
from tenants.states import Purpose
from userflow.accounts.models import EndUser

# More than a core hashes beside reads, so that all cores are busy, and few enough that rejections cost little.
LOGINS_PER_SECOND_AND_CORE = 100.0
# Users who are read; there may be many more.
READ = 5000
SMALL_BUDGET = 20


def measure(run: Run) -> list[Row]:
    """Measure the curves one after the other."""
    over_threads = _over_threads(run)
    with servers.platform(run.home, "roomy") as roomy:
        with servers.command(run.home, "tenant_worker"):
            over_tenants = _over_tenants(run, roomy)
        return [*over_threads, *over_tenants, _over_users(run, roomy)]


def _over_threads(run: Run) -> list[Row]:
    [tenant] = world.tenants_with_users(1, run.sizes.users, run.say)
    reads = tenancy.random_reads([tenant], run.sizes.users)
    latencies: dict[str, list[signin.Latency]] = {str(number): [] for number in run.sizes.threads}
    with ExitStack() as running:
        started = {
            threads: running.enter_context(servers.platform(run.home, f"threads-{threads}", WEB_THREADS=threads))
            for threads in latencies
        }
        taken = run.compare("curves_threads", [Subject(name, server, reads) for name, server in started.items()])
        offered = LOGINS_PER_SECOND_AND_CORE * (os.cpu_count() or 1)
        for number in range(run.rounds):
            for threads, server in list(started.items())[:: 1 if number % 2 == 0 else -1]:
                run.say(f"round {number + 1} of {run.rounds}: {threads} threads beside logins")
                reading, signing = signin.reads_and_logins(server, tenant, logins_per_second=offered)
                latencies[threads].append(signin.latency(reading, signing, 2 * run.seconds))
    run.raw["curves_logins"] = {threads: [asdict(one) for one in some] for threads, some in latencies.items()}
    first, last = (str(run.sizes.threads[end]) for end in (0, -1))
    few, many = (statistics.median(one.beside["p99_ms"] for one in latencies[threads]) for threads in (first, last))
    return [
        _row(f"reads with {last} threads", taken, last, first, f"with {first}"),
        Row(
            "–",
            f"p99 of {signin.READS_PER_SECOND:.0f} reads/s with {last} threads while {offered:.0f} logins/s are sent",
            ours=f"{many:.1f} ms",
            against=f"with {first}: {few:.1f} ms",
            ratio=many / few,
            wanted="no target",
            met=True,
        ),
    ]


def _over_tenants(run: Run, roomy: Server) -> list[Row]:
    steps, of_each = run.sizes.tenants_read, run.sizes.users_of_each
    tenants = world.tenants_with_users(steps[-1], of_each, run.say)
    reads = {str(step): tenancy.random_reads(tenants[:step], of_each) for step in steps}
    subjects = [Subject(step, roomy, some) for step, some in reads.items()]
    tenancy.meet_every_tenant(run, subjects[-1])
    taken = run.compare("curves_tenants", subjects)
    with servers.platform(run.home, "tight", TENANT_CONNECTION_BUDGET=str(SMALL_BUDGET)) as tight:
        taken_of_tight = run.compare(
            "curves_tenants_tight", [Subject(step, tight, some) for step, some in reads.items()]
        )
    first, last = (str(steps[end]) for end in (0, -1))
    return [
        _row(f"reads of {last} tenants, the default budget of connections", taken, last, first, f"of {first}"),
        _row(
            f"reads of {last} tenants, {SMALL_BUDGET} connections a worker",
            taken_of_tight,
            last,
            first,
            f"of {first}",
        ),
    ]


def _over_users(run: Run, roomy: Server) -> Row:
    steps = run.sizes.users_read
    # The second tenant is the one that `crowd` fills.
    tenants = world.tenants_with_users(len(steps), 1, run.say)
    order = [tenants[0], *tenants[2:], tenants[1]]
    subjects = []
    for step, tenant in zip(steps, order, strict=True):
        run.say(f"{step} users")
        crowd.fill(tenant, step)
        subjects.append(Subject(str(step), roomy, _reads_of_random_users(tenant, step)))
    taken = run.compare("curves_users", subjects)
    first, last = (str(steps[end]) for end in (0, -1))
    return _row(f"reads in a tenant of {last} users", taken, last, first, f"of {first}")


def _reads_of_random_users(tenant: world.BenchTenant, users: int) -> list[bytes]:
    with in_tenant(tenant.tenant_id, Purpose.READ), connections["tenant"].cursor() as cursor:
        # Sorting a million takes longer than a request may.
        cursor.execute("SET statement_timeout = 0")
        chosen = list(EndUser.objects.order_by("?").values_list("id", flat=True)[: min(users, READ)])
        cursor.execute("RESET statement_timeout")
    return [world.get(f"/uflow/user/enduser/{tenant.tenant_id}/{user}", tenant.token) for user in chosen]


def _row(what: str, taken: dict[str, list[Sample]], name: str, to: str, than: str) -> Row:
    return Row(
        "–",
        what,
        ours=cost(taken[name]),
        against=f"{than}: {cost(taken[to])}",
        ratio=ratio(taken, name, to),
        wanted="no target",
        met=True,
    )

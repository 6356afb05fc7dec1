"""Targets 31 and 32: start, memory, and one tenant more with more and more of them, beside Keycloak's realms."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

import psutil
import psycopg
from django.db import connections

from bench import servers, world
from bench.home import Home
from bench.issuers import call
from bench.peers.keycloak import distribution
from bench.peers.keycloak.distribution import Distribution
from bench.peers.keycloak.realms import Realms
from bench.run import Row, Run
from bench.servers import Server
from identity_platform.serving.embedded.processes import processes_like
from identity_platform.serving.embedded.valkey import Valkey
from tenants.backend.pool import POOL
from tenants.lifecycle.capacity import main_server
from tenants.lifecycle.warm_pool import refill
from tenants.models import DatabaseServer
from userflow.admins.actions import create_admin_user

# Created at each step and timed; restarts of each program.
NEW, RESTARTS = 3, 3
MIB = 2**20

# By step, program and value (`new_ms`, `start_s`).
Grown = dict[str, dict[str, dict[str, list[float]]]]


@contextmanager
def platform(home: Home) -> Iterator[Server]:
    """Start the platform; the CPU time of Valkey is counted as its own."""
    with servers.platform(home) as server:
        server.helper = _valkey(home).pid
        yield server


def _valkey(home: Home) -> psutil.Process:
    socket = f"unixsocket:{Valkey(home.folder).socket}"
    (process,) = processes_like(lambda words: socket in " ".join(words))
    return process


def measure(run: Run, keycloak: Distribution, steps: Sequence[int]) -> Grown:
    """Return the times of new tenants and realms, and of restarts, with so many of them there."""
    grown: Grown = {}
    for step in steps:
        with platform(run.home) as ours, distribution.serving(run.home, keycloak) as theirs:
            new = _new(run, ours, Realms(theirs, keycloak), step)
        starts: dict[str, list[float]] = {"platform": [], "keycloak": []}
        for number in range(min(run.rounds, RESTARTS)):
            run.say(f"{step} tenants, start {number + 1}")
            with platform(run.home) as ours:
                starts["platform"].append(ours.seconds_to_start)
            with distribution.serving(run.home, keycloak) as theirs:
                starts["keycloak"].append(theirs.seconds_to_start)
        grown[str(step)] = {name: {"new_ms": new[name], "start_s": starts[name]} for name in starts}
    return grown


def _new(run: Run, ours: Server, realms: Realms, step: int) -> dict[str, list[float]]:
    """Grow both to the step, then time more of each in turn by their APIs; the warm pool is filled before."""
    DatabaseServer.objects.update(capacity=10 * step + 1_000)
    world.grow(step, run.say)
    for number in range(realms.number(), step):
        run.say(f"realm {number} of {step}")
        realms.time_to_create(f"realm-{uuid4().hex[:8]}")
    authorization = f"Bearer {_operator_token()}"
    new: dict[str, list[float]] = {"platform": [], "keycloak": []}
    # The first one of a server opens connections and loads code.
    for number in range(NEW + 1):
        refill(main_server(), 1)
        times = _time_to_create_tenant(ours, authorization), realms.time_to_create(f"realm-{uuid4().hex[:8]}")
        for name, milliseconds in zip(new, times, strict=True):
            new[name] += [milliseconds] if number else []
    return new


def _time_to_create_tenant(ours: Server, authorization: str) -> float:
    body = json.dumps({"name": "A new tenant"})
    headers = {"Content-Type": "application/json", "Authorization": authorization}
    began = time.perf_counter()
    call(ours.port, "POST", "/uflow/admin/tenants", body, **headers)
    return (time.perf_counter() - began) * 1000


def _operator_token() -> str:
    name = f"operator-{uuid4().hex[:8]}"
    user, _ = create_admin_user(tenant_id=None, username=name, email=f"{name}@example.com", password=world.PASSWORD)
    return world.token_of(user)


# --- memory ----------------------------------------------------------------------------------------------------------


def memory(home: Home, ours: Server, theirs: Server) -> dict[str, dict[str, float]]:
    """Return the MiB (PSS) of each server, of its backends of PostgreSQL, of Valkey, and the number of the backends."""
    # Those of this process are none of the server's.
    connections.close_all()
    POOL.close_idle()
    backends = _backends(home)
    keycloak, platform_ = backends.pop(distribution.DATABASE, []), [pid for pids in backends.values() for pid in pids]
    return {
        "platform": {
            "server": _tree(ours.process.pid),
            "postgres": _pss(platform_),
            "valkey": _pss([_valkey(home).pid]),
            "backends": len(platform_),
        },
        "keycloak": {
            "server": _tree(theirs.process.pid),
            "postgres": _pss(keycloak),
            "valkey": 0.0,
            "backends": len(keycloak),
        },
    }


def _backends(home: Home) -> dict[str, list[int]]:
    """Return the backends of each database but this one."""
    found: dict[str, list[int]] = {}
    with psycopg.connect(home.environment["DATABASE_URL"], autocommit=True) as raw:
        query = "SELECT datname, pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        for name, pid in raw.execute(query):
            found.setdefault(name, []).append(pid)
    return found


def _tree(pid: int) -> float:
    process = psutil.Process(pid)
    return _pss([pid, *(child.pid for child in process.children(recursive=True))])


def _pss(pids: Sequence[int]) -> float:
    """Return the MiB of processes; memory that several share is divided among them (proc_pid_smaps_rollup(5))."""
    return sum(psutil.Process(pid).memory_full_info().pss for pid in pids) / MIB


# --- rows ------------------------------------------------------------------------------------------------------------


def rows(grown: Grown, memory_: dict[str, dict[str, float]]) -> list[Row]:
    """Return the rows of memory, start, one tenant more and restart."""
    first, last = next(iter(grown)), list(grown)[-1]
    total = {name: sum(of[part] for part in ("server", "postgres", "valkey")) for name, of in memory_.items()}
    return [
        _row("31", "memory after that load: server, backends of PostgreSQL, Valkey (PSS)", total, "MiB", most=0.6),
        _row("31", f"start with {first}", _middle(grown[first], "start_s"), "s", most=0.3),
        _row("32", f"one tenant more with {last}, warm pool filled", _middle(grown[last], "new_ms"), "ms", most=0.01),
        _row("32", f"restart with {last}", _middle(grown[last], "start_s"), "s", most=0.3),
    ]


def _middle(values: dict[str, dict[str, list[float]]], what: str) -> dict[str, float]:
    return {name: statistics.median(of[what]) for name, of in values.items()}


def _row(target: str, what: str, values: dict[str, float], unit: str, *, most: float) -> Row:
    ratio = values["platform"] / values["keycloak"]
    return Row(
        target,
        what,
        ours=f"{values['platform']:.3g} {unit}",
        against=f"Keycloak: {values['keycloak']:.3g} {unit}",
        ratio=ratio,
        wanted=f"≤ {most}",
        met=ratio <= most,
    )

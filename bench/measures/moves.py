"""Move a tenant between two servers while a writer uses the API: the longest time without an acknowledged write."""

from __future__ import annotations

import http.client
import itertools
import json
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench import world
from bench.run import Row, Run
from bench.servers import platform
from identity_platform.serving import embedded
from tenants import job_steps
from tenants.entering.context import in_tenant
from tenants.jobs.moves import move_tenant
from tenants.lifecycle.capacity import add_database_server
from tenants.models import Tenant
from tenants.states import Purpose
from userflow.accounts.models import EndUser
from userflow.tenants.actions import open_tenant

WANTED_SECONDS = 1.0
_SETTINGS = "wal_level = logical\nmax_wal_senders = 10\nmax_replication_slots = 10\n"
_RETRY_SECONDS = 0.01


@dataclass
class Writer:
    """One client that changes the name of one user, again and again, over one connection."""

    port: int
    path: str
    token: str
    acknowledged: list[float] = field(default_factory=list)
    rejected: int = 0
    last_name: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Write until `over` is set; retry a 503 after some milliseconds, earlier than Retry-After asks."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        number = 0
        while not self.over.is_set():
            number += 1
            name = f"Name {number}"
            connection.request("PUT", self.path, json.dumps({"name": name}), headers)
            response = connection.getresponse()
            response.read()
            if response.status == 200:
                self.acknowledged.append(time.perf_counter())
                self.last_name = name
            else:
                assert response.status == 503, response.status
                self.rejected += 1
                time.sleep(_RETRY_SECONDS)
        connection.close()

    @property
    def longest_gap(self) -> float:
        """Return the longest time between two acknowledged writes, in seconds."""
        times = self.acknowledged
        return max(later - earlier for earlier, later in itertools.pairwise(times))


def measure(run: Run) -> list[Row]:
    """Move a tenant to and fro, in turn online and by dump and restore."""
    users = run.sizes.moved
    gaps: dict[str, list[float]] = {"online": [], "offline": []}
    whole: dict[str, list[float]] = {"online": [], "offline": []}
    paused: list[str] = []
    marks: list[list[tuple[str, float]]] = []
    with ExitStack() as stack:
        for name in ("one", "two"):
            url = stack.enter_context(_server(run.home.folder / f"server-{name}"))
            add_database_server(name=name, url=url, capacity=10)
        run.say(f"a tenant with {users} users")
        tenant = open_tenant(name="Moved", server="one").tenant
        known = world.with_users(tenant, users)
        port = stack.enter_context(platform(run.home)).port
        place = 0
        for round_ in range(run.rounds):
            for how in ("online", "offline"):
                place += 1
                run.say(f"{how}, round {round_ + 1} of {run.rounds}")
                writer = Writer(port, f"/uflow/user/enduser/{tenant.pk}/{known.users[0]}", known.token)
                lines: list[str] = []
                marks.append([])
                with _writing(writer), job_steps.observed_by(partial(_mark, marks[-1])):
                    began = time.perf_counter()
                    move_tenant(
                        tenant_id=tenant.pk,
                        server=("one", "two")[place % 2],
                        offline=how == "offline",
                        progress=lines.append,
                    )
                    whole[how].append(time.perf_counter() - began)
                assert (how == "online") == ("Online" in lines[0]), lines
                gaps[how].append(writer.longest_gap)
                paused += [line for line in lines if "paused" in line]
                _check_last_write(tenant, known, writer)
    run.raw["move"] = {
        "users": users,
        "longest_gap_seconds": gaps,
        "move_seconds": whole,
        "paused": paused,
        "steps": marks,
    }
    online, offline = (statistics.median(gaps[how]) for how in ("online", "offline"))
    beside = "; ".join(
        f"{how}: {', '.join(f'{gap:.2f}' for gap in gaps[how])} s of {', '.join(f'{all_:.1f}' for all_ in whole[how])} s"
        for how in gaps
    )
    return [
        Row(
            "–",
            f"longest time without an acknowledged write while a tenant of {users} users is moved",
            f"{online:.2f} s",
            f"by dump and restore: {offline:.2f} s",
            online / offline,
            "< 1 s",
            online < WANTED_SECONDS,
            beside,
        )
    ]


def _mark(into: list[tuple[str, float]], step: str) -> None:
    into.append((step, time.perf_counter()))


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """Run a server with the safe settings of bin/serve and logical replication; yield its URL."""
    embedded.attach(var=folder, valkey=False)
    embedded.leave(folder)
    with (folder / "postgres" / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.write(_SETTINGS)
    try:
        yield embedded.attach(var=folder, valkey=False).database_url or ""
    finally:
        embedded.leave(folder)


@contextmanager
def _writing(writer: Writer) -> Iterator[None]:
    """Let the writer write during the block, a second before and after it included."""
    thread = threading.Thread(target=writer.run)
    thread.start()
    try:
        time.sleep(1)
        yield
        time.sleep(1)
    finally:
        writer.over.set()
        thread.join()


def _check_last_write(tenant: Tenant, known: world.BenchTenant, writer: Writer) -> None:
    with in_tenant(tenant.pk, Purpose.INSPECT):
        stored = EndUser.objects.values_list("name", flat=True).get(pk=known.users[0])
    assert stored == writer.last_name, (stored, writer.last_name)

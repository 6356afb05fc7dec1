"""Processes share the connections of a database server: leases in the global database bound them all."""

import json
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.conf import settings
from django.db import connection, connections, transaction
from django.db.models import Sum
from django.db.models.functions import Now

from identity_platform.serving import embedded
from tenants.backend.base import LEASES
from tenants.backend.leases import PLENTY, uses
from tenants.backend.pool import POOL
from tenants.database_servers import queries, servers
from tenants.entering.context import in_tenant
from tenants.entering.target import TENANT_ALIAS
from tenants.lifecycle.capacity import main_server
from tenants.models import ConnectionLease, DatabaseServer
from tests.machine.conftest import within
from tests.machine.groups import program
from tests.registry.processes import ROOT, Server, environment
from tests.tenants.conftest import bring_template, run_command, throw_away
from tests.world import TestTenant, build_tenant, capture_statements

# Starting servers is slow on a busy machine.
pytestmark = pytest.mark.timeout(900)
MAX_CONNECTIONS, RESERVED = 20, 5
# PostgreSQL keeps three for superusers.
LIMIT = MAX_CONNECTIONS - 3 - RESERVED
FULL = "The database server of this tenant has no connections left. Try again in a moment."


@pytest.fixture(scope="module")
def small(django_db_setup: None, django_db_blocker: Any) -> Iterator[DatabaseServer]:
    """A database server that allows few connections."""
    home = Path(tempfile.mkdtemp(prefix="identity-small-"))
    embedded.attach(var=home, valkey=False, unsafe_fast=True)
    embedded.leave(home)
    with (home / "postgres" / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.write(f"max_connections = {MAX_CONNECTIONS}\n")
    url = embedded.attach(var=home, valkey=False, unsafe_fast=True).database_url
    assert url is not None
    with django_db_blocker.unblock():
        bring_template(url)
        name = f"small-{secrets.token_hex(3)}"
        run_command("add_database_server", name, url, capacity=100_000)
        server = DatabaseServer.objects.get(name=name)
        yield server
        server.delete()
    embedded.leave(home)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def there(small: DatabaseServer, django_db_blocker: Any) -> Iterator[list[TestTenant]]:
    """More tenants on it than it allows connections."""
    with django_db_blocker.unblock():
        tenants = [build_tenant("leased") for _ in range(LIMIT + 4)]
        assert {tenant.row.database.server_id for tenant in tenants} == {small.pk}
        DatabaseServer.objects.filter(pk=small.pk).update(accepts_tenants=False)
        yield tenants
        for tenant in tenants:
            throw_away(tenant.row)
            tenant.row.delete()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start a server with one worker, whose leases expire after six seconds."""
    started: list[Server] = []

    def begin(**more: str) -> Server:
        more = {"TENANT_CONNECTION_BUDGET": "20", "WEB_THREADS": "6", "RESERVED_CONNECTIONS": str(RESERVED), **more}
        module = "tests.tenants.leasing.short_leases"
        log = tmp_path / f"{len(started)}.log"
        started.append(Server(log, 1, DJANGO_SETTINGS_MODULE=module, **more))
        started[-1].wait()
        return started[-1]

    yield begin
    for server in started:
        server.end()
    ConnectionLease.objects.all().delete()


def listed(server: Server, tenant: TestTenant) -> tuple[int, str]:
    """Return the status and the message of a request that reads the tenant's database."""
    path = f"/uflow/user/enduser/list?tenant_id={tenant.id}"
    response = server.call("GET", path, token=tenant.api.token)
    return response.status_code, str(response.json().get("message", ""))


def backends(server: DatabaseServer) -> set[int]:
    """Return the server processes of the platform's pooled connections."""
    with servers.maintenance(server) as raw:
        rows = raw.execute(
            "SELECT pid FROM pg_stat_activity WHERE starts_with(datname, %s) AND application_name = 'identity'",
            [settings.TENANT_DATABASE_PREFIX],
        )
        return {row[0] for row in rows}


def leased(server: DatabaseServer) -> int:
    live = ConnectionLease.objects.filter(server=server, expires_at__gt=Now())
    return int(live.aggregate(total=Sum("connections"))["total"] or 0)


def take(server: DatabaseServer, number: int) -> ConnectionLease:
    """Lease connections as another process does."""
    return ConnectionLease.objects.create(
        process=uuid4(), server=server, host="elsewhere", pid=1, command="", connections=number, global_connections=0,
        expires_at=Now() + timedelta(seconds=300),
    )  # fmt: skip


@contextmanager
def taken(server: DatabaseServer, number: int) -> Iterator[ConnectionLease]:
    """Lease connections as another process does, for a moment."""
    lease = take(server, number)
    yield lease
    lease.delete()


def load(started: list[Server], tenants: list[TestTenant], seconds: float) -> Counter[tuple[int, str]]:
    """Return how many requests for random tenants ended how, from six clients of each server."""
    outcomes, guard, until = Counter[tuple[int, str]](), threading.Lock(), time.monotonic() + seconds

    def walk(server: Server, seed: int) -> None:
        choose = random.Random(seed)
        while time.monotonic() < until:
            outcome = listed(server, choose.choice(tenants))
            with guard:
                outcomes[outcome] += 1

    walkers = [
        threading.Thread(target=walk, args=(server, place * 100 + number))
        for place, server in enumerate(started)
        for number in range(6)
    ]
    for walker in walkers:
        walker.start()
    for walker in walkers:
        walker.join()
    return outcomes


def test_processes_never_open_more_than_the_server_allows(
    start: Callable[..., Server], small: DatabaseServer, there: list[TestTenant]
) -> None:
    started = [start() for _ in range(3)]
    most, most_kept, ended = 0, 0, threading.Event()

    def watch() -> None:
        nonlocal most, most_kept
        before = set[int]()
        while not ended.wait(0.25):
            now = backends(small)
            # A server process is there for a moment after its connection is closed.
            most, most_kept, before = max(most, len(now)), max(most_kept, len(now & before)), now

    watcher = threading.Thread(target=watch)
    watcher.start()
    outcomes = load(started, there, 12)
    ended.set()
    watcher.join()
    assert most_kept <= LIMIT
    assert LIMIT // 2 < most <= LIMIT + RESERVED
    # On a busy machine some requests time out, which is a 503 with another message.
    assert {status for status, _ in outcomes} <= {200, 503}, outcomes
    assert outcomes[200, ""] > 2 * LIMIT
    assert leased(small) <= LIMIT
    assert ConnectionLease.objects.filter(server=small, connections__gt=0).count() == 3


def test_grants_wait_for_each_other(
    start: Callable[..., Server], small: DatabaseServer, there: list[TestTenant]
) -> None:
    # Another process is between reading what is leased and writing its own lease, in a transaction of this thread.
    server, answers = start(), list[tuple[int, str]]()
    asking = threading.Thread(target=lambda: answers.append(listed(server, there[0])))
    with transaction.atomic():
        DatabaseServer.objects.select_for_update(no_key=True).get(pk=small.pk)
        asking.start()
        assert within(30, lambda: waiting_for_this_transaction() == 1)
        take(small, LIMIT)
    asking.join()
    assert answers == [(503, FULL)]
    assert leased(small) == LIMIT


def waiting_for_this_transaction() -> int:
    """Return how many server processes wait for a lock that this transaction has."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))")
        return int(cursor.fetchone()[0])


def test_full_server_is_503_and_others_are_served(
    start: Callable[..., Server], small: DatabaseServer, there: list[TestTenant], tenant: TestTenant
) -> None:
    server = start(METRICS_TOKEN="scrape")
    with taken(small, LIMIT):
        rejected = server.call("GET", f"/uflow/user/enduser/list?tenant_id={there[0].id}", token=there[0].api.token)
        assert (rejected.status_code, rejected.json()["message"]) == (503, FULL)
        assert int(rejected.headers["Retry-After"]) >= 1
        other = server.call("GET", "/exsvc/api/v1/services", token=there[0].api.token)
        assert other.status_code == 200
        assert listed(server, tenant) == (200, "")
        metrics = server.call("GET", "/metrics", token="scrape").content.decode()
    assert f'identity_server_connections_refused_total{{server="{small.name}"}} 1.0' in metrics
    assert f'identity_server_lease_limit{{server="{small.name}"}} {LIMIT}.0' in metrics
    assert f'identity_server_leased_connections{{server="{small.name}"}} {LIMIT}.0' in metrics
    assert listed(server, there[0]) == (200, "")


def test_process_closes_its_own_idle_connection_if_refused(
    start: Callable[..., Server], small: DatabaseServer, there: list[TestTenant]
) -> None:
    server = start()
    with taken(small, LIMIT - 1):
        for tenant in there[:4]:
            assert listed(server, tenant) == (200, "")
        assert within(5, lambda: len(backends(small)) == 1)


def test_newcomer_gets_its_share_of_a_full_server(
    start: Callable[..., Server], small: DatabaseServer, there: list[TestTenant]
) -> None:
    first = start()
    assert {listed(first, tenant) for tenant in there[:LIMIT]} == {(200, "")}
    assert leased(small) == LIMIT
    second = start()
    assert within(20, lambda: listed(second, there[-1]) == (200, ""))
    assert leased(small) <= LIMIT


def test_process_keeps_more_than_its_base_only_while_there_is_plenty(
    start: Callable[..., Server], small: DatabaseServer, there: list[TestTenant]
) -> None:
    first = start(TENANT_CONNECTION_BUDGET="500", BASE_CONNECTION_BUDGET="2")
    for tenant in there * 2:
        assert listed(first, tenant) == (200, "")
    assert leased(small) == len(backends(small)) == int(LIMIT * PLENTY)
    # What is left is for those that have less than their base, without waiting for it.
    second = start(TENANT_CONNECTION_BUDGET="500", BASE_CONNECTION_BUDGET="2")
    assert {listed(second, tenant) for tenant in there} == {(200, "")}
    assert int(LIMIT * PLENTY) < leased(small) <= LIMIT
    assert not ConnectionLease.objects.filter(server=small, refused_at__isnull=False).exists()


def test_leases_of_killed_process_end_with_it(
    start: Callable[..., Server], small: DatabaseServer, there: list[TestTenant]
) -> None:
    killed = full_and_killed(start, small, there)
    # Not by their time: this is after the test.
    ConnectionLease.objects.update(expires_at=Now() + timedelta(seconds=300))
    assert listed(start(), there[0]) == (200, "")
    assert not ConnectionLease.objects.filter(process=killed).exists()


@pytest.mark.parametrize("gone", [{"machine": "another"}, {"machine": ""}])
def test_leases_of_process_on_other_machine_expire(
    gone: dict[str, str], start: Callable[..., Server], small: DatabaseServer, there: list[TestTenant]
) -> None:
    other = start()
    full_and_killed(start, small, there, **gone)
    assert listed(other, there[0]) == (503, FULL)
    assert within(15, lambda: listed(other, there[0]) == (200, ""))


def full_and_killed(start: Callable[..., Server], small: DatabaseServer, there: list[TestTenant], **gone: str) -> UUID:
    """Kill a server that has leased all that is left, after this change of its leases; return its process."""
    killed = start()
    for tenant in there[:LIMIT]:
        assert listed(killed, tenant) == (200, "")
    assert leased(small) == LIMIT
    process = ConnectionLease.objects.get(server=small).process
    if gone:
        ConnectionLease.objects.filter(process=process).update(**gone)
    killed.process.kill()
    killed.process.wait()
    return process


def test_stopped_process_deletes_its_leases(
    start: Callable[..., Server], small: DatabaseServer, there: list[TestTenant]
) -> None:
    server = start()
    assert listed(server, there[0]) == (200, "")
    main = ConnectionLease.objects.get(server=main_server())
    assert main.global_connections == servers.global_connections(6)
    assert leased(small) > 0
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=60) == 0
    assert not ConnectionLease.objects.exists()
    assert within(5, lambda: not backends(small))


def test_process_that_cannot_renew_stays_within_its_share(
    start: Callable[..., Server], small: DatabaseServer, there: list[TestTenant]
) -> None:
    server = start()
    with taken(small, 1):
        assert listed(server, there[0]) == (200, "")
        before = backends(small)
        with psycopg.connect(**connection.get_connection_params()) as raw:
            raw.execute("LOCK TABLE tenants_connectionlease IN ACCESS EXCLUSIVE MODE")
            row = raw.execute("SELECT max(expires_at) FROM tenants_connectionlease WHERE machine <> ''").fetchone()
            assert row is not None
            assert within(15, lambda: raw.execute("SELECT clock_timestamp() > %s", row).fetchone() == (True,))
            assert before & backends(small)
            assert [listed(server, tenant) for tenant in there] == [(200, "")] * len(there)
            assert len(backends(small)) <= LIMIT // 2
        assert within(15, lambda: 0 < leased(small) <= LIMIT // 2 + 1)
        assert [listed(server, tenant) for tenant in there[:2]] == [(200, "")] * 2


def test_process_outlives_a_restart_of_the_global_database(
    start: Callable[..., Server], small: DatabaseServer, there: list[TestTenant]
) -> None:
    server = start()
    assert listed(server, there[0]) == (200, "")
    held = ConnectionLease.objects.get(server=small)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'identity' AND pid <> pg_backend_pid()"
        )
    ConnectionLease.objects.filter(pk=held.pk).update(expires_at=held.expires_at - timedelta(seconds=2))
    assert within(10, lambda: ConnectionLease.objects.get(pk=held.pk).expires_at > held.expires_at)
    assert listed(server, there[1]) == (200, "")


def test_lost_leases_are_leased_again(
    start: Callable[..., Server], small: DatabaseServer, there: list[TestTenant]
) -> None:
    server = start()
    assert listed(server, there[0]) == (200, "")
    before = backends(small)
    ConnectionLease.objects.all().delete()
    assert within(10, lambda: not before & backends(small))
    assert listed(server, there[0]) == (200, "")
    assert leased(small) > 0
    assert within(10, lambda: ConnectionLease.objects.filter(server=main_server(), global_connections__gt=0).exists())


def forking(tenant: TestTenant, *prefix: str) -> list[dict[str, Any]]:
    """Return what a leasing process, its child and the process again saw (`forking.py`)."""
    command = [*prefix, sys.executable, "-P", "-m", "tests.tenants.leasing.forking", str(tenant.id)]
    module = "tests.tenants.leasing.short_leases"
    variables = environment(DJANGO_SETTINGS_MODULE=module, RESERVED_CONNECTIONS=str(RESERVED))
    done = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def test_forked_child_has_leases_of_its_own(small: DatabaseServer, there: list[TestTenant]) -> None:
    before, child, after = forking(there[0])
    assert before["backend"] == after["backend"] != child["backend"]
    assert before["leases"] == after["leases"]
    # Both have one for the tenant's server, under keys of their own.
    assert not {process for process, _ in before["leases"]} & {process for process, _ in child["leases"]}
    assert any(number > 0 for _, number in child["leases"])
    assert not ConnectionLease.objects.filter(command="forking").exists()


@pytest.fixture
def leasing() -> Iterator[None]:
    """Leases in the process of the test."""
    POOL.close_idle()
    LEASES.start(global_connections=2)
    yield
    LEASES.end()
    POOL.close_idle()


def test_reused_connection_costs_no_statement(leasing: None, tenant: TestTenant) -> None:
    def read() -> tuple[int, int]:
        with capture_statements() as made:
            assert tenant.api.get("/uflow/user/enduser/list", {"tenant_id": str(tenant.id)}).status_code == 200
        return made.counts

    read()
    (before,) = ConnectionLease.objects.filter(connections__gt=0).values_list("connections", flat=True)
    with_leases = read()
    assert ConnectionLease.objects.get(connections__gt=0).connections == before
    LEASES.end()
    assert read() == with_leases


def test_connections_are_kept_after_the_last_lease(leasing: None, tenant: TestTenant) -> None:
    def backend() -> object:
        with in_tenant(tenant.id), connections[TENANT_ALIAS].cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return cursor.fetchone()

    backend()
    LEASES.end()
    assert backend() == backend()


@pytest.mark.needs("faketime")
@pytest.mark.parametrize("offset", ["-1h", "+1h"])
def test_lease_ends_by_the_clock_of_the_database(offset: str, small: DatabaseServer, there: list[TestTenant]) -> None:
    own, *_ = forking(there[0], str(program("faketime")), "-f", offset)
    assert own["leases"]
    assert all(0 < seconds <= 6 for seconds in own["left"])


def test_use_of_main_server_includes_planned_workers(settings: Any) -> None:
    server = main_server()
    with servers.maintenance(server) as raw:
        ((free,),) = raw.execute(queries.FREE_FOR_PLATFORM).fetchall()
    DatabaseServer.objects.filter(pk=server.pk).update(connection_limit=free)
    use = uses([server.pk])[server.pk]
    assert (use.limit, use.leased) == (free - settings.RESERVED_CONNECTIONS, 0)
    assert use.room == use.limit - settings.WEB_WORKERS * servers.global_connections(settings.WEB_THREADS)
    settings.PLATFORM_HOSTS = 3
    assert uses([server.pk])[server.pk].reserved == 3 * use.reserved


def test_server_behind_a_pooler_is_not_counted(second: DatabaseServer, second_url: str) -> None:
    assert servers.is_counted(second.pk, second.revision)
    admin = f"{second_url}&application_name=a"
    run_command("add_database_server", second.name, second_url, admin_url=admin, replace=True)
    second.refresh_from_db()
    assert not servers.is_counted(second.pk, second.revision)
    assert second.connection_limit is None

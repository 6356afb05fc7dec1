"""One bounded pool for all tenants of a process."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.db import DatabaseError, ProgrammingError, connection, connections

from tenants.backend.pool import POOL
from tenants.backend.raw import REPEATED
from tenants.checks import budget_fits
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.models import Tenant
from tests.machine.conftest import within
from tests.tenants.conftest import make_tenants, throw_away
from tests.world import TestTenant
from userflow.accounts.models import EndUser
from userflow.mail_delivery import background

# Creating many tenants is slow on a busy machine.
pytestmark = pytest.mark.timeout(300)
BUDGET = settings.BASE_CONNECTION_BUDGET
ON_THE_SERVER = "SELECT count(*) FROM pg_stat_activity WHERE starts_with(datname, %s) AND application_name = 'identity'"


@pytest.fixture(autouse=True)
def no_other_connections() -> None:
    """Earlier tests leave idle ones to other servers, and a mail of theirs takes one to read the tenant's branding."""
    assert background.settle()
    POOL.close_idle()


@pytest.fixture(scope="module")
def many_tenants(django_db_setup: None, django_db_blocker: Any) -> Iterator[list[Tenant]]:
    """100 tenants in one process."""
    with django_db_blocker.unblock():
        tenants = make_tenants(100)
        yield tenants
        # They are a gigabyte.
        for tenant in tenants:
            throw_away(tenant)


def backend_of(tenant_id: UUID) -> int:
    """Return the server process of the tenant's connection."""
    with in_tenant(tenant_id):
        return int(response("SELECT pg_backend_pid()"))


def response(statement: str) -> Any:
    with connections["tenant"].cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def terminate(pid: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


def on_the_server() -> int:
    with connection.cursor() as cursor:
        cursor.execute(ON_THE_SERVER, [settings.TENANT_DATABASE_PREFIX])
        return int(cursor.fetchone()[0])


def threads_of_this_process() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_random_use_of_100_tenants_stays_within_budget(many_tenants: list[Tenant]) -> None:
    most, most_threads, wrong = 0, 0, []
    walkers, steps = 6, 150
    before = threads_of_this_process()

    def walk(seed: int) -> None:
        nonlocal most, most_threads
        choose = random.Random(seed)
        for _ in range(steps):
            tenant = choose.choice(many_tenants)
            with in_tenant(tenant.pk) as tenant:
                if response("SELECT current_database()") != tenant.database:
                    wrong.append(tenant.slug)
            most = max(most, POOL.open)
            most_threads = max(most_threads, threads_of_this_process())
        connections.close_all()

    with ThreadPoolExecutor(walkers) as pool:
        list(pool.map(walk, range(walkers)))
    # The server ends a closed connection a moment later.
    assert within(30, lambda: on_the_server() <= BUDGET)
    assert wrong == []
    assert most == BUDGET
    assert most_threads <= before + walkers


def test_tenant_reuses_its_connection(tenant: TestTenant) -> None:
    assert backend_of(tenant.id) == backend_of(tenant.id)


def test_least_recently_used_connection_is_closed_first(many_tenants: list[Tenant]) -> None:
    first, second, *others = [tenant.pk for tenant in many_tenants[: BUDGET + 1]]
    kept, given_up = backend_of(first), backend_of(second)
    for tenant_id in others[:-1]:
        backend_of(tenant_id)
    assert backend_of(first) == kept
    backend_of(others[-1])
    assert POOL.open <= BUDGET
    assert backend_of(first) == kept
    assert backend_of(second) != given_up


def test_connection_closed_by_server_is_not_reused(tenant: TestTenant) -> None:
    pid = backend_of(tenant.id)
    terminate(pid)
    assert tenant.api.get("/uflow/user/enduser/list", {"tenant_id": str(tenant.id)}).status_code == 200
    assert backend_of(tenant.id) != pid


def test_broken_connection_is_not_pooled(tenant: TestTenant) -> None:
    def lose_the_connection() -> None:
        with in_tenant(tenant.id), tenant_atomic():
            terminate(response("SELECT pg_backend_pid()"))
            EndUser.objects.count()

    with pytest.raises(DatabaseError):
        lose_the_connection()
    with in_tenant(tenant.id):
        assert EndUser.objects.count() >= 0


@contextmanager
def budget_in_use(tenants: list[Tenant]) -> Iterator[threading.Event]:
    """Hold the whole budget in threads until the block ends or the event is set."""
    entered, free = threading.Barrier(BUDGET + 1), threading.Event()

    def stay(tenant: Tenant) -> None:
        with in_tenant(tenant.pk):
            response("SELECT 1")
            entered.wait(60)
            free.wait(60)
        connections.close_all()

    with ThreadPoolExecutor(BUDGET) as pool:
        staying = [pool.submit(stay, tenant) for tenant in tenants[:BUDGET]]
        try:
            entered.wait(60)
            yield free
        finally:
            free.set()
        for done in staying:
            done.result()


@pytest.fixture
def budget_of_tenants() -> Iterator[list[Tenant]]:
    """As many tenants as the budget has connections: `many_tenants` would be created for one quiet test."""
    tenants = make_tenants(BUDGET)
    yield tenants
    for tenant in tenants:
        throw_away(tenant)


@pytest.mark.quiet_machine
def test_request_waits_two_seconds_for_exhausted_budget_then_503(
    budget_of_tenants: list[Tenant], tenant: TestTenant
) -> None:
    with budget_in_use(budget_of_tenants):
        began = time.monotonic()
        rejected = tenant.api.get("/uflow/user/enduser/list", {"tenant_id": str(tenant.id)})
        waited = time.monotonic() - began
    assert rejected.status_code == 503
    assert rejected.json()["error"] == "Service Unavailable"
    assert int(rejected.headers["Retry-After"]) >= 1
    # The connections are held for half a minute and more.
    assert 1.9 <= waited < 15
    assert tenant.api.get("/uflow/user/enduser/list", {"tenant_id": str(tenant.id)}).status_code == 200


def test_waiter_gets_first_released_connection(many_tenants: list[Tenant]) -> None:
    for _ in range(5):  # more tries on a busy machine
        with budget_in_use(many_tenants) as free:
            threading.Timer(0.3, free.set).start()
            began = time.monotonic()
            backend_of(many_tenants[BUDGET].pk)
            waited = time.monotonic() - began
        if waited < 1.5:
            break
    assert waited < 1.5


HELD_HERE = "SELECT count(*) FROM pg_locks WHERE objid = 5 AND pid = pg_backend_pid()"
DIRT: list[tuple[str, Callable[[], None], str, Any]] = [
    ("a setting", lambda: run("SET application_name = 'dirty'"), "SELECT current_setting('application_name')", "dirty"),
    ("a temporary table", lambda: run("CREATE TEMP TABLE dirt (x int)"), "SELECT to_regclass('dirt')::text", "dirt"),
    # Of this connection: the server ends the one before, which held the lock, with a delay.
    ("a lock", lambda: run("SELECT pg_advisory_lock(5)"), HELD_HERE, 1),
]


def run(statement: str) -> None:
    with connections["tenant"].cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.parametrize(("what", "soil", "look", "dirty"), DIRT, ids=[d[0] for d in DIRT])
def test_session_state_is_not_reused(
    tenant: TestTenant, what: str, soil: Callable[[], None], look: str, dirty: Any
) -> None:
    with in_tenant(tenant.id):
        soil()
        assert response(look) == dirty
    with in_tenant(tenant.id):
        assert response(look) != dirty


def test_set_local_ends_with_transaction(tenant: TestTenant) -> None:
    with in_tenant(tenant.id):
        with tenant_atomic():
            run("SET LOCAL statement_timeout = '17s'")
        pid = response("SELECT pg_backend_pid()")
    assert backend_of(tenant.id) == pid
    with in_tenant(tenant.id):
        assert response("SELECT current_setting('statement_timeout')") != "17s"


def test_aborted_transaction_is_rolled_back_on_release(tenant: TestTenant) -> None:
    person = tenant.register()

    def fail_half_way() -> None:
        with in_tenant(tenant.id), tenant_atomic():
            EndUser.objects.filter(pk=person.id).update(name="Never Written")
            run("SELECT * FROM there_is_no_such_table")

    with pytest.raises(ProgrammingError):
        fail_half_way()
    with in_tenant(tenant.id):
        assert EndUser.objects.get(pk=person.id).name != "Never Written"


def test_timeouts_apply_to_every_connection(tenant: TestTenant) -> None:
    with in_tenant(tenant.id):
        limits = [
            response(f"SELECT setting::int FROM pg_settings WHERE name = '{name}'")
            for name in ("statement_timeout", "lock_timeout")
        ]
        zone = response("SELECT current_setting('timezone')")
    assert limits == [settings.TENANT_STATEMENT_TIMEOUT_MS] * 2
    assert zone == "UTC"


def test_check_rejects_workers_over_max_connections(settings: Any) -> None:
    settings.WEB_THREADS = 16
    assert budget_fits(databases=["default"]) == []
    settings.WEB_WORKERS = 200
    assert [message.id for message in budget_fits(databases=["default"])] == ["tenants.E003"]
    settings.PGBOUNCER = True
    assert budget_fits(databases=["default"]) == []


def test_check_warns_if_threads_could_find_no_connection(settings: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('max_connections')::int")
        (most,) = cursor.fetchone()
    settings.WEB_WORKERS, settings.WEB_THREADS, settings.PLATFORM_HOSTS = 2, 16, 2
    assert budget_fits(databases=["default"]) == []
    # The 64 threads of 4 workers may each use a connection to a tenant's database, and there are those to the global one.
    settings.RESERVED_CONNECTIONS = most - 4 * (16 + 3) - 4 * 16
    assert [message.id for message in budget_fits(databases=["default"])] == ["tenants.W005"]
    settings.BASE_CONNECTION_BUDGET = 8
    assert budget_fits(databases=["default"]) == []
    settings.WEB_WORKERS, settings.PLATFORM_HOSTS = 1, 1
    settings.RESERVED_CONNECTIONS = most - 5
    assert [message.id for message in budget_fits(databases=["default"])] == ["tenants.E003"]


def test_repeated_statement_is_prepared_on_new_connection(tenant: TestTenant) -> None:
    mark = f"repeated_{random.getrandbits(32)}"

    def run() -> None:
        with connections["tenant"].cursor() as cursor:
            cursor.execute(f"SELECT %s::int AS {mark}", [1])

    def prepared() -> int:
        return int(response(f"SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%AS {mark}'"))

    with in_tenant(tenant.id):
        run()
        assert prepared() == 0
        for _ in range(REPEATED):
            run()
    POOL.close_idle()
    with in_tenant(tenant.id):
        run()
        assert prepared() == 1

"""The check of database servers, and the metrics of servers, tenants and tasks."""

import secrets
import socket
from collections.abc import Iterator

import pytest
from procrastinate.contrib.django.models import ProcrastinateJob
from prometheus_client.metrics_core import Metric

from identity_platform import task_queue
from tenants import metrics
from tenants.database_servers import servers
from tenants.database_servers.server_health import check_servers
from tenants.models import DatabaseServer, ServerHealth, TenantDatabase
from tests.tenants.conftest import run_command
from tests.world import capture_statements

CONTENT = {"identity_server_up", "identity_server_tenants", "identity_server_connections"}


@pytest.fixture
def silent() -> Iterator[DatabaseServer]:
    """A server that does not respond any more."""
    name = f"silent-{secrets.token_hex(3)}"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"postgresql://unused@127.0.0.1:{port}/"
    sealed = servers.seal_url(name, "url_sealed", url)
    server = DatabaseServer.objects.create(name=name, host="127.0.0.1", url_sealed=sealed, accepts_tenants=False)
    yield server
    server.delete()


def collected() -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics.collect()}


def samples(metric: Metric, label: str) -> dict[str, float]:
    return {sample.labels[label]: sample.value for sample in metric.samples}


def test_check_tells_servers_that_respond_from_those_that_do_not(
    second: DatabaseServer, silent: DatabaseServer
) -> None:
    assert check_servers() == [silent.name]
    health = ServerHealth.objects.get(server=second)
    assert health.responds
    assert 0 < (health.connections or 0) <= (health.max_connections or 0)
    assert (health.seconds or 0) > 0
    failed = ServerHealth.objects.get(server=silent)
    assert (failed.responds, failed.connections) == (False, None)
    assert (health.tenants, failed.tenants) == (0, 0)
    found = collected()
    up = samples(found["identity_server_up"], "server")
    assert (up[second.name], up[silent.name]) == (1, 0)
    assert silent.name not in samples(found["identity_server_connections"], "server")
    assert 0 <= samples(found["identity_server_check_age_seconds"], "server")[silent.name] < 60


def test_server_with_unreadable_url_counts_as_silent(second: DatabaseServer, silent: DatabaseServer) -> None:
    DatabaseServer.objects.filter(pk=silent.pk).update(url_sealed=b"altered")
    assert check_servers() == [silent.name]
    assert not ServerHealth.objects.get(server=silent).responds
    assert ServerHealth.objects.get(server=second).responds


def test_check_that_is_told_to_end_stores_nothing(silent: DatabaseServer) -> None:
    assert check_servers(until=lambda: True) == []
    assert not ServerHealth.objects.filter(server=silent).exists()


def test_tenants_are_counted_by_state_and_server(second: DatabaseServer) -> None:
    slug = f"counted-{secrets.token_hex(4)}"
    run_command("create_tenant", "Acme", "--slug", slug, "--server", second.name)
    before = collected()
    run_command("suspend_tenant", slug)
    after = collected()
    for state, change in (("active", -1), ("suspended", 1)):
        counts = [samples(each["identity_tenants"], "state")[state] for each in (before, after)]
        assert counts[1] - counts[0] == change
    assert samples(after["identity_server_tenants"], "server")[second.name] == 1
    assert samples(after["identity_server_capacity"], "server")[second.name] == 100_000
    behind = after["identity_tenants_behind"].samples[0].value
    TenantDatabase.objects.filter(tenant__slug=slug).update(schema_version="1-000000000000")
    assert collected()["identity_tenants_behind"].samples[0].value == behind + 1


def test_waiting_tasks_are_counted_by_queue() -> None:
    ProcrastinateJob._base_manager.filter(queue_name=task_queue.PERIODIC).delete()
    before = {backlog.queue: backlog.waiting for backlog in task_queue.backlogs()}
    task_queue.run_soon("check_database_servers")
    after = {backlog.queue: backlog.waiting for backlog in task_queue.backlogs()}
    assert after[task_queue.PERIODIC] == before.get(task_queue.PERIODIC, 0) + 1


def test_scrape_has_a_fixed_number_of_statements(second: DatabaseServer, silent: DatabaseServer) -> None:
    check_servers()
    with capture_statements() as made:
        assert set(collected()) >= CONTENT
    # States, servers, spare databases, health, leases, queues, workers, the last backup; no tenant's database.
    assert made.counts == (8, 0)

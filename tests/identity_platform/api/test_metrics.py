"""Metrics for Prometheus: only with the token."""

import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django
import pytest
from django.db import OperationalError, connections
from django.test import Client
from prometheus_client import REGISTRY

from identity_platform.api import errors, metrics
from identity_platform.audit.writer import record_for_each_in_tenant, record_for_tenant
from identity_platform.semaphore import Semaphore
from tenants.entering.context import in_tenant, tenant_atomic
from tests.openid.sign_in_domains import ApiAt
from tests.world import Api, TestTenant


def test_metrics_without_token_is_404(api: Api, settings: Any) -> None:
    assert api.get("/metrics").status_code == 404
    settings.METRICS_TOKEN = "only-for-this-test"
    assert api.get("/metrics").status_code == 404
    assert api.get("/metrics", token="wrong").status_code == 404
    assert api.get("/metrics", token="only-for-this-test").status_code == 200


def test_metrics_are_given_by_address_and_without_tls(settings: Any) -> None:
    settings.METRICS_TOKEN, settings.SECURE_SSL_REDIRECT = "only-for-this-test", True
    settings.ALLOWED_HOSTS, settings.BASE_URL = ["id.example.org"], "https://id.example.org"
    for host in ("10.0.0.7:8000", "id-1.internal:8000"):
        assert ApiAt(host=host, token="only-for-this-test").get("/metrics").status_code == 200
        assert ApiAt(host=host, token="wrong").get("/metrics").status_code == 404
        assert ApiAt(host=host).get("/schema/").status_code == 400


@pytest.mark.parametrize("header", ["HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED"])
def test_metrics_are_not_given_through_a_proxy(settings: Any, header: str) -> None:
    settings.METRICS_TOKEN = "only-for-this-test"
    sent = {"HTTP_AUTHORIZATION": "Bearer only-for-this-test"}
    assert Client().get("/metrics", **sent).status_code == 200
    assert Client().get("/metrics", **sent, **{header: "for=203.0.113.7"}).status_code == 404


def test_metrics_count_responses_by_route_not_path(api: Api, settings: Any) -> None:
    settings.METRICS_TOKEN = "only-for-this-test"
    api.get("/uflow/admin/users/some-user-id")
    shown = api.get("/metrics", token="only-for-this-test").content.decode()
    assert 'identity_requests_total{method="GET",route="uflow/admin/users/<str:user_id>",status="401"}' in shown
    assert "some-user-id" not in shown
    assert "identity_ratelimit_fallback_total" in shown


def test_metrics_count_unknown_methods_as_one(api: Api, settings: Any) -> None:
    settings.METRICS_TOKEN = "only-for-this-test"
    unknown_method = f"M{secrets.token_hex(4)}".upper()
    assert api.call(unknown_method, "/uflow/live").status_code == 405
    shown = api.get("/metrics", token="only-for-this-test").content.decode()
    assert 'identity_requests_total{method="other",route="uflow/live",status="405"}' in shown
    assert unknown_method not in shown


@pytest.fixture
def scrape(api: Api, settings: Any) -> Callable[[], str]:
    """Scrape the platform."""
    settings.METRICS_TOKEN = "only-for-this-test"

    def read() -> str:
        response = api.get("/metrics", token="only-for-this-test")
        assert response.status_code == 200
        return response.content.decode()

    return read


def value(name: str, **labels: str) -> float:
    """Return the value in this process, as other tests' processes count too."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_scrape_names_release_and_processes(scrape: Callable[[], str]) -> None:
    shown = scrape()
    assert f'identity_build_info{{django="{django.__version__}",python=' in shown
    found = dict(line.split() for line in shown.splitlines() if line.startswith("identity_process"))
    assert float(found["identity_processes"]) >= 1
    assert float(found["identity_process_memory_bytes"]) > 10_000_000
    assert float(found["identity_process_threads"]) >= 1
    assert float(found["identity_process_open_files"]) > 3
    assert float(found["identity_process_cpu_seconds_total"]) > 0
    assert 'identity_collector_up{collector="platform"} 1.0' in shown


def test_scrape_goes_on_without_a_collector_that_fails(scrape: Callable[[], str]) -> None:
    def fail() -> list[Any]:
        raise OperationalError

    metrics.add_collector("absent", fail)
    try:
        shown = scrape()
    finally:
        del metrics._collectors["absent"]
    assert 'identity_collector_up{collector="absent"} 0.0' in shown
    assert 'identity_collector_up{collector="figures"} 1.0' in shown
    assert "identity_tenants{" in shown


def test_values_of_ended_processes_are_no_longer_shown(scrape: Callable[[], str]) -> None:
    ended = subprocess.run([sys.executable, "-c", GAUGE], env=os.environ, check=False, capture_output=True, text=True)
    assert ended.returncode == 9, ended.stderr
    pid = ended.stdout.strip()
    assert (Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]) / f"gauge_livesum_{pid}.db").exists()
    shown = scrape()
    assert "identity_of_this_test_total 3.0" in shown
    assert "identity_used_by_this_test" not in shown


# A process that ends without cleaning up, as one that is killed.
GAUGE = """
import os
from prometheus_client import Counter, Gauge
Gauge("identity_used_by_this_test", "-", multiprocess_mode="livesum").set(7)
Counter("identity_of_this_test", "-").inc(3)
print(os.getpid(), flush=True)
os._exit(9)
"""


def test_sign_ins_are_counted_by_outcome(tenant: TestTenant) -> None:
    def counted(action: str, outcome: str) -> float:
        return value("identity_audit_events_total", action=action, outcome=outcome)

    person = tenant.register()
    good, bad = counted("signin.succeeded", "success"), counted("signin.refused", "refused")
    tenant.sign_in(person)
    body = {"client_id": str(tenant.client_id), "email": person.email, "password": "wrong wrong wrong"}
    assert Api().post("/uflow/auth/enduser/login", body).status_code == 401
    assert counted("signin.succeeded", "success") == good + 1
    assert counted("signin.refused", "refused") == bad + 1


def test_events_of_rolled_back_transactions_are_not_counted(tenant: TestTenant) -> None:
    with in_tenant(tenant.id):
        with tenant_atomic():
            record_for_tenant("metrics.tested")
            connections["tenant"].set_rollback(True)
        with tenant_atomic():
            record_for_tenant("metrics.tested")
        record_for_each_in_tenant("metrics.tested", kind="end_user", ids=["a", "b"])
    assert value("identity_audit_events_total", action="metrics.tested", outcome="success") == 3


def test_bounded_operations_are_counted() -> None:
    kind = secrets.token_hex(4)
    semaphore = Semaphore(kind, 1, errors.UnknownPath)
    with semaphore.acquire():
        assert value("identity_bounded_operations", kind=kind) == 1
        with pytest.raises(errors.UnknownPath), semaphore.acquire():
            pass
    assert value("identity_bounded_operations", kind=kind) == 0
    assert value("identity_bounded_operations_rejected_total", kind=kind) == 1

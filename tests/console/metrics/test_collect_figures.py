"""`collect_figures`: metrics of all tenants, so that the console does not query their databases."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections
from psycopg import sql

from console.metrics.models import PlatformDay, TenantDay, TenantFigures
from tenants.copies import databases
from tenants.database_servers import servers
from tenants.lifecycle.capacity import main_server
from tenants.models import TenantDatabase
from tests.tenants.conftest import connect_to, run_command
from tests.world import Api, TestTenant, User

COUNTED = ("sign_ins", "failures", "new_users", "registry_calls", "registry_refused")
NONE = dict.fromkeys(COUNTED, 0)


def collect(*tenants: TestTenant) -> str:
    return str(run_command("collect_figures", tenant=[tenant.slug for tenant in tenants], settled=0))


def figures(tenant: TestTenant) -> TenantFigures:
    return TenantFigures.objects.get(pk=tenant.id)


def today(tenant: TestTenant) -> dict[str, int]:
    """Return all days of a new tenant: two if midnight has passed meanwhile."""
    days = list(TenantDay.objects.filter(tenant_id=tenant.id))
    assert days
    return {name: sum(getattr(day, name) for day in days) for name in COUNTED}


def wrong_password(tenant: TestTenant, person: User) -> None:
    body = {"client_id": str(tenant.client_id), "email": person.email, "password": "wrong wrong wrong"}
    assert Api().post("/uflow/auth/enduser/login", body).status_code == 401


def test_collect_counts_users_sign_ins_and_sizes(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    person, other = tenant.register(), tenant.register()
    tenant.sign_in(person)
    wrong_password(tenant, other)
    tenant.api.post("/uflow/user/enduser/delete", {"tenant_id": str(tenant.id), "user_id": str(other.id)})
    collect(tenant)
    found = figures(tenant)
    assert (found.users, found.active_users, found.protected_users, found.failure) == (2, 1, 0, "")
    assert found.database_bytes > 1_000_000
    assert found.check_ms > 0
    assert today(tenant) == {**NONE, "sign_ins": 1, "failures": 1, "new_users": 2}


def test_collect_counts_each_event_once(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    person = tenant.register()
    tenant.sign_in(person)
    collect(tenant)
    collect(tenant)
    assert today(tenant)["sign_ins"] == 1
    tenant.sign_in(person)
    tenant.register()
    collect(tenant)
    assert today(tenant) == {**NONE, "sign_ins": 2, "new_users": 2}


def test_concurrent_collections_count_once(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    for _ in range(3):
        tenant.sign_in(tenant.register())

    def work() -> None:
        collect(tenant)
        connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert today(tenant)["sign_ins"] == 3


def test_collect_leaves_unsettled_events_for_next_run(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    tenant.sign_in(tenant.register())
    run_command("collect_figures", tenant=[tenant.slug], settled=600)
    assert today(tenant) == {**NONE, "new_users": 1}
    collect(tenant)
    assert today(tenant)["sign_ins"] == 1


def test_factors_are_counted_by_method(new_tenant: Callable[[], TestTenant]) -> None:
    from tenants.entering.context import in_tenant
    from userflow.accounts.models import EndUser

    tenant = new_tenant()
    people = [tenant.register() for _ in range(3)]
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk=people[0].id).update(mfa_methods=["webauthn", "totp"])
        EndUser.objects.filter(pk=people[1].id).update(mfa_methods=["totp"])
    collect(tenant)
    assert figures(tenant).factors == {"webauthn": 1, "totp": 2}
    assert figures(tenant).protected_users == 2


def test_failing_tenant_does_not_stop_collection(
    new_tenant: Callable[[], TestTenant], capsys: pytest.CaptureFixture[str]
) -> None:
    broken, well = new_tenant(), new_tenant()
    well.register()
    collect(broken, well)
    before = figures(broken)
    real = TenantDatabase.objects.get(pk=broken.id).name
    TenantDatabase.objects.filter(pk=broken.id).update(name="no_such_database")
    with pytest.raises(SystemExit) as end:
        call_command("collect_figures", tenant=[broken.slug, well.slug], settled=0)
    TenantDatabase.objects.filter(pk=broken.id).update(name=real)
    assert end.value.code == 1
    assert broken.slug in capsys.readouterr().out
    after = figures(broken)
    assert after.failure
    assert (after.collected_at, after.users) == (before.collected_at, before.users)
    assert figures(well).users == 1
    collect(broken)
    assert figures(broken).failure == ""


def test_collect_has_own_statement_timeout(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    tenant.register()
    name = tenant.row.database.name
    with servers.maintenance(main_server()) as raw:
        raw.execute(sql.SQL("ALTER DATABASE {} SET statement_timeout = '300ms'").format(sql.Identifier(name)))
        databases.end_sessions(raw, name)
    with connect_to(tenant.row) as raw, ThreadPoolExecutor(1) as pool:
        # Counting millions of users is slow; so is counting one behind a lock.
        with raw.transaction():
            raw.execute("LOCK TABLE userflow_enduser")
            counting = pool.submit(collect, tenant)
            time.sleep(0.8)
        counting.result()
    assert (figures(tenant).users, figures(tenant).failure) == (1, "")


def test_collect_rejects_unknown_tenant() -> None:
    from django.core.management import CommandError

    with pytest.raises(CommandError) as error:
        call_command("collect_figures", tenant=["no-such-tenant"])
    assert error.value.returncode == 2


def test_older_than_skips_recent_tenants(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    slug = tenant.slug
    assert run_command("collect_figures", tenant=[slug], older_than=3600).startswith("1/1")
    assert "0 up to date" in run_command("collect_figures", tenant=[slug], older_than=3600)


def test_registry_calls_are_counted_by_tenant(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    tenant, other = new_tenant(), new_tenant()
    responses = [tenant.api.get("/exsvc/api/v1/services").status_code for _ in range(103)]
    other.api.get("/exsvc/api/v1/services")
    collect(tenant, other)
    day = today(tenant)
    # Pending errors are written together with the next call.
    assert (day["registry_calls"], day["registry_refused"]) == (103, responses.count(429))
    assert today(other)["registry_calls"] == 1
    collect(tenant, other)
    assert today(tenant)["registry_calls"] == 103


def test_platform_day_sums_tenant_days(new_tenant: Callable[[], TestTenant]) -> None:
    for tenant in (new_tenant(), new_tenant()):
        tenant.sign_in(tenant.register())
        collect(tenant)
    last = PlatformDay.objects.latest("day")
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(sign_ins), sum(new_users) FROM console_tenantday WHERE day = %s", [last.day])
        wanted: Any = cursor.fetchone()
    assert (last.sign_ins, last.new_users) == wanted


def test_metrics_are_deleted_with_tenant(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    tenant = new_tenant()
    tenant.register()
    collect(tenant)
    response = operator.delete(f"/uflow/admin/tenants/{tenant.id}", {"confirm": tenant.slug})
    assert response.status_code == 200
    assert not TenantFigures.objects.filter(pk=tenant.id).exists()
    assert not TenantDay.objects.filter(tenant_id=tenant.id).exists()

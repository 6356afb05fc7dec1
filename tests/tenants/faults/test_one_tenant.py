"""One tenant's database dropped, locked or slow: that tenant is told to come again, the others notice nothing."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from django.conf import settings
from django.db import close_old_connections, connection, connections

from tenants import databases
from tenants.capacity import main_server
from tenants.models import TenantDatabase
from tests.tenants.conftest import straight_to, throw_away
from tests.world import Api, Person, TestTenant, build_tenant

Fault = Callable[[TestTenant], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def struck(django_db_setup: None, django_db_blocker: Any) -> Iterator[tuple[TestTenant, Person, Api]]:
    """A tenant with a user who is signed in."""
    with django_db_blocker.unblock():
        tenant = build_tenant("struck")
        person = tenant.register()
        yield tenant, person, tenant.as_user(person)
        throw_away(tenant.row)


@contextmanager
def gone(tenant: TestTenant) -> Iterator[None]:
    """The database does not exist while this lasts."""
    with databases.maintenance_connection(main_server()) as raw:
        database = tenant.row.database.name
        raw.execute(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS false')
        raw.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [database])
        raw.execute(f'ALTER DATABASE "{database}" RENAME TO "{database}_away"')
        yield
        raw.execute(f'ALTER DATABASE "{database}_away" RENAME TO "{database}"')
        raw.execute(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS true')


@contextmanager
def locked(tenant: TestTenant) -> Iterator[None]:
    """Its users' table is held by somebody who does not let go."""
    with straight_to(tenant.row) as raw, raw.transaction():
        raw.execute("LOCK TABLE userflow_enduser IN ACCESS EXCLUSIVE MODE")
        yield


@contextmanager
def slow(tenant: TestTenant) -> Iterator[None]:
    """Reading a user takes longer than anybody waits."""
    with straight_to(tenant.row) as raw:
        raw.execute("ALTER TABLE userflow_enduser RENAME TO enduser_kept")
        raw.execute("CREATE VIEW userflow_enduser AS SELECT k.* FROM enduser_kept k, pg_sleep(20)")
        yield
        raw.execute("DROP VIEW userflow_enduser")
        raw.execute("ALTER TABLE enduser_kept RENAME TO userflow_enduser")


@contextmanager
def behind(tenant: TestTenant) -> Iterator[None]:
    """A release runs ahead of the database: a column that its code reads is not there yet."""
    mapping = TenantDatabase.objects.filter(pk=tenant.id)
    with straight_to(tenant.row) as raw:
        raw.execute("ALTER TABLE userflow_enduser RENAME email_key TO address_key")
        raw.execute("ALTER TABLE userflow_enduser RENAME created_at TO began_at")
        [version] = mapping.values_list("schema_version", flat=True)
        mapping.update(schema_version="1-000000000000")
        yield
        mapping.update(schema_version=version)
        raw.execute("ALTER TABLE userflow_enduser RENAME address_key TO email_key")
        raw.execute("ALTER TABLE userflow_enduser RENAME began_at TO created_at")


@pytest.mark.parametrize("fault", [gone, locked, slow, behind])
def test_the_tenant_is_told_to_come_again_and_the_others_notice_nothing(
    fault: Fault, struck: tuple[TestTenant, Person, Api], other_tenant: TestTenant
) -> None:
    tenant, person, user = struck
    other_person = other_tenant.register()
    login = {"client_id": str(tenant.client_id), "email": person.email, "password": person.password}
    apis: dict[str, Callable[[], Any]] = {
        "token": lambda: user.get(f"/uflow/user/enduser/{tenant.id}/{person.id}"),
        "login": lambda: Api().post("/uflow/auth/enduser/login", login),
        "list": lambda: tenant.api.get("/uflow/user/enduser/list", {"tenant_id": str(tenant.id)}),
    }

    def knock(api: Callable[[], Any]) -> tuple[Any, float]:
        began = time.monotonic()
        try:
            return api(), time.monotonic() - began
        finally:
            connections.close_all()

    with fault(tenant), ThreadPoolExecutor(len(apis)) as pool:
        knocking = [pool.submit(knock, api) for api in apis.values()]
        other = other_tenant.api.get(f"/uflow/user/enduser/{other_tenant.id}/{other_person.id}")
        ready = Api().get("/uflow/ready")
        answers = [answer.result() for answer in knocking]
    for refused, waited in answers:
        assert refused.status_code == 503
        assert refused.headers["Content-Type"] == "application/json"
        assert set(refused.json()) == {"error", "message"}
        assert int(refused.headers["Retry-After"]) >= 1
        # A good two seconds; who is not told waits twenty, or for ever.
        assert waited < 10
    assert (other.status_code, ready.status_code) == (200, 200)
    assert {api: knock_again().status_code for api, knock_again in apis.items()} == dict.fromkeys(apis, 200)


def test_a_column_that_is_missing_in_a_current_database_is_a_fault_of_ours(
    struck: tuple[TestTenant, Person, Api],
) -> None:
    tenant, person, user = struck
    path = f"/uflow/user/enduser/{tenant.id}/{person.id}"
    with straight_to(tenant.row) as raw:
        raw.execute("ALTER TABLE userflow_enduser RENAME created_at TO began_at")
        answer = user.get(path)
        raw.execute("ALTER TABLE userflow_enduser RENAME began_at TO created_at")
    assert answer.status_code == 500
    assert user.get(path).status_code == 200


def test_closed_connections_are_replaced(struck: tuple[TestTenant, Person, Api], other_tenant: TestTenant) -> None:
    tenant, person, user = struck
    path = f"/uflow/user/enduser/{tenant.id}/{person.id}"
    assert user.get(path).status_code == 200
    with databases.maintenance_connection(main_server()) as raw:
        raw.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'identity' AND (datname = %s OR starts_with(datname, %s))",
            [connection.settings_dict["NAME"], settings.TENANT_DATABASE_PREFIX],
        )
    # What Django does at the start of a request; its test client leaves it out.
    close_old_connections()
    assert user.get(path).status_code == 200
    assert other_tenant.api.get("/uflow/user/enduser/list", {"tenant_id": str(other_tenant.id)}).status_code == 200


@pytest.mark.parametrize("state", ["migrating", "moving", "provisioning", "failed"])
def test_a_tenant_that_is_worked_on_says_so(state: str, struck: tuple[TestTenant, Person, Api]) -> None:
    tenant, person, _ = struck
    TenantDatabase.objects.filter(pk=tenant.id).update(status=state)
    login = {"client_id": str(tenant.client_id), "email": person.email, "password": person.password}
    answer = Api().post("/uflow/auth/enduser/login", login)
    TenantDatabase.objects.filter(pk=tenant.id).update(status="active")
    assert answer.status_code == 503
    assert "Retry-After" in answer.headers

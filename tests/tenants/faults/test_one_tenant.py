"""One tenant's database is dropped, locked or slow: that tenant gets 503, the others are not affected."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from django.conf import settings
from django.db import close_old_connections, connection, connections

from tenants.database_servers import servers
from tenants.lifecycle.capacity import main_server
from tenants.models import TenantDatabase
from tests.copies import change_mapping
from tests.machine.conftest import within
from tests.tenants.conftest import connect_to, throw_away
from tests.tenants.records import is_back
from tests.world import Api, TestTenant, User, build_tenant

Fault = Callable[[TestTenant], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def struck(django_db_setup: None, django_db_blocker: Any) -> Iterator[tuple[TestTenant, User, Api]]:
    """A tenant with a user who is signed in."""
    with django_db_blocker.unblock():
        tenant = build_tenant("struck")
        person = tenant.register()
        yield tenant, person, tenant.as_user(person)
        throw_away(tenant.row)


@contextmanager
def gone(tenant: TestTenant) -> Iterator[None]:
    """Drop the database during the block."""
    with servers.maintenance(main_server()) as raw:
        database = tenant.row.database.name
        raw.execute(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS false')
        raw.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [database])
        raw.execute(f'ALTER DATABASE "{database}" RENAME TO "{database}_away"')
        yield
        raw.execute(f'ALTER DATABASE "{database}_away" RENAME TO "{database}"')
        raw.execute(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS true')
    assert within(60, lambda: is_back(tenant))


@contextmanager
def locked(tenant: TestTenant) -> Iterator[None]:
    """Lock the table of users."""
    with connect_to(tenant.row) as raw, raw.transaction():
        raw.execute("LOCK TABLE userflow_enduser IN ACCESS EXCLUSIVE MODE")
        yield


@contextmanager
def slow(tenant: TestTenant) -> Iterator[None]:
    """Make reading a user take longer than the statement timeout."""
    with connect_to(tenant.row) as raw:
        raw.execute("ALTER TABLE userflow_enduser RENAME TO enduser_kept")
        raw.execute("CREATE VIEW userflow_enduser AS SELECT k.* FROM enduser_kept k, pg_sleep(20)")
        yield
        raw.execute("DROP VIEW userflow_enduser")
        raw.execute("ALTER TABLE enduser_kept RENAME TO userflow_enduser")


@contextmanager
def behind(tenant: TestTenant) -> Iterator[None]:
    """Rename a column that the code reads, as if a migration were missing."""
    mapping = TenantDatabase.objects.filter(pk=tenant.id)
    with connect_to(tenant.row) as raw:
        raw.execute("ALTER TABLE userflow_enduser RENAME email_key TO address_key")
        raw.execute("ALTER TABLE userflow_enduser RENAME created_at TO began_at")
        [version] = mapping.values_list("schema_version", flat=True)
        mapping.update(schema_version="1-000000000000")
        yield
        mapping.update(schema_version=version)
        raw.execute("ALTER TABLE userflow_enduser RENAME address_key TO email_key")
        raw.execute("ALTER TABLE userflow_enduser RENAME began_at TO created_at")


@pytest.mark.quiet_machine
@pytest.mark.parametrize("fault", [gone, locked, slow, behind])
def test_outage_of_one_tenant_is_503_for_it_only(
    fault: Fault, struck: tuple[TestTenant, User, Api], other_tenant: TestTenant
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
        responses = [response.result() for response in knocking]
    for rejected, waited in responses:
        assert rejected.status_code == 503
        assert rejected.headers["Content-Type"] == "application/json"
        assert set(rejected.json()) == {"error", "code", "message"}
        assert int(rejected.headers["Retry-After"]) >= 1
        # A good two seconds; without the limit it would be twenty, or forever.
        assert waited < 10
    assert (other.status_code, ready.status_code) == (200, 200)
    assert {api: knock_again().status_code for api, knock_again in apis.items()} == dict.fromkeys(apis, 200)


def test_missing_column_in_current_database_is_500(
    struck: tuple[TestTenant, User, Api],
) -> None:
    tenant, person, user = struck
    path = f"/uflow/user/enduser/{tenant.id}/{person.id}"
    with connect_to(tenant.row) as raw:
        raw.execute("ALTER TABLE userflow_enduser RENAME created_at TO began_at")
        response = user.get(path)
        raw.execute("ALTER TABLE userflow_enduser RENAME began_at TO created_at")
    assert response.status_code == 500
    assert user.get(path).status_code == 200


def test_closed_connections_are_replaced(struck: tuple[TestTenant, User, Api], other_tenant: TestTenant) -> None:
    tenant, person, user = struck
    path = f"/uflow/user/enduser/{tenant.id}/{person.id}"
    assert user.get(path).status_code == 200
    with servers.maintenance(main_server()) as raw:
        raw.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'identity' AND (datname = %s OR starts_with(datname, %s))",
            [connection.settings_dict["NAME"], settings.TENANT_DATABASE_PREFIX],
        )
    # Django does this at the start of a request; its test client does not.
    close_old_connections()
    assert user.get(path).status_code == 200
    assert other_tenant.api.get("/uflow/user/enduser/list", {"tenant_id": str(other_tenant.id)}).status_code == 200


@pytest.mark.parametrize("state", ["migrating", "moving", "provisioning", "failed"])
def test_tenant_under_maintenance_is_503(state: str, struck: tuple[TestTenant, User, Api]) -> None:
    tenant, person, _ = struck
    change_mapping(tenant.id, status=state)
    login = {"client_id": str(tenant.client_id), "email": person.email, "password": person.password}
    response = Api().post("/uflow/auth/enduser/login", login)
    change_mapping(tenant.id, status="active")
    assert response.status_code == 503
    assert "Retry-After" in response.headers

"""Several database servers: new tenants go to the one with most room."""

import secrets
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tenants.checks import budget_fits, servers_allow_online_moves
from tenants.database_servers import servers
from tenants.database_servers.servers import seal_url
from tenants.entering.context import in_tenant
from tenants.lifecycle import provisioning, warm_pool
from tenants.lifecycle.capacity import main_server
from tenants.models import DatabaseServer, Tenant, WarmDatabase
from tests.tenants.conftest import databases_on, run_command, throw_away
from tests.world import Api, TestTenant
from userflow.accounts.models import EndUser


def test_create_uses_server_with_most_room(
    second: DatabaseServer, operator: Api, new_tenant: Callable[[], TestTenant]
) -> None:
    tenant = new_tenant()
    person = tenant.register()
    assert tenant.row.database.server == second
    assert tenant.row.database.name in databases_on(second)
    assert tenant.row.database.name not in databases_on(main_server())
    with in_tenant(tenant.id):
        assert EndUser.objects.filter(pk=person.id).exists()
    mapping = operator.get("/uflow/user/enduser/databases", {"tenant_id": str(tenant.id)}).json()
    assert mapping["database_name"] == tenant.row.database.name
    assert mapping["database_host"] == second.host


def test_create_on_named_server(second: DatabaseServer) -> None:
    slug = f"named-{secrets.token_hex(3)}"
    run_command("create_tenant", "Named", "--slug", slug, "--server", "main")
    tenant = Tenant.objects.get(slug=slug)
    assert tenant.database.server == main_server()
    throw_away(tenant)
    with pytest.raises(CommandError, match=r"No database server has the name 'nowhere'\. Known servers: .*main"):
        call_command("create_tenant", "Nowhere", "--server", "nowhere", stdout=StringIO())


def test_each_server_has_its_own_spares(second: DatabaseServer) -> None:
    run_command("tenant_worker", "--once", "--size", "2")
    spares = WarmDatabase.objects.filter(server=second, ready=True)
    assert set(spares.values_list("name", flat=True)) <= databases_on(second)
    assert spares.count() == 2
    tenant = provisioning.create_tenant(name="Claims", slug=f"claims-{secrets.token_hex(3)}")
    assert spares.count() == 1
    assert tenant.database.server == second


def test_refill_continues_after_failing_server(second: DatabaseServer) -> None:
    name = f"a-broken-{secrets.token_hex(3)}"
    broken = DatabaseServer.objects.create(name=name, host="broken", url_sealed=b"does not open")
    made, problems = warm_pool.refill_all(1)
    broken.delete()
    assert WarmDatabase.objects.filter(server=second, ready=True).exists()
    assert [problem.partition(":")[0] for problem in problems] == [name]
    assert made >= 1


def test_replaced_server_url_applies_to_next_request(
    second: DatabaseServer, second_url: str, new_tenant: Callable[[], TestTenant]
) -> None:
    tenant = new_tenant()
    assert name_of_connection(tenant) == "identity"
    run_command("add_database_server", second.name, f"{second_url}&application_name=elsewhere", replace=True)
    assert tenant.api.get("/uflow/user/enduser/list", {"tenant_id": str(tenant.id)}).status_code == 200
    assert name_of_connection(tenant) == "elsewhere"


def name_of_connection(tenant: TestTenant) -> Any:
    from django.db import connections

    with in_tenant(tenant.id), connections["tenant"].cursor() as cursor:
        cursor.execute("SELECT current_setting('application_name')")
        return cursor.fetchone()[0]


def test_server_urls_are_sealed(second: DatabaseServer, second_url: str) -> None:
    assert second.url_sealed is not None
    assert second_url.encode() not in bytes(second.url_sealed)
    assert b"postgresql" not in bytes(second.url_sealed)


def test_migrate_covers_every_server(second: DatabaseServer, new_tenant: Callable[[], TestTenant]) -> None:
    from tenants.entering.schema import schema_version
    from tenants.jobs import fleet
    from tenants.models import TenantDatabase

    tenant = new_tenant()
    TenantDatabase.objects.filter(pk=tenant.id).update(schema_version="0-000000000000")
    # Only of that server: other tests may have left tenants elsewhere.
    outcomes = [outcome for outcome in fleet.migrate_tenants().outcomes if outcome.server == second.name]
    assert [(outcome.slug, outcome.result) for outcome in outcomes] == [(tenant.slug, "migrated")]
    assert TenantDatabase.objects.get(pk=tenant.id).schema_version == schema_version()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("not a url", "The URL is invalid"),
        ("postgresql://unknown@127.0.0.1:1/?connect_timeout=1", "The connection failed"),
    ],
)
def test_add_rejects_unfit_server(url: str, says: str) -> None:
    name = f"unfit-{secrets.token_hex(3)}"
    with pytest.raises(CommandError, match=says) as error:
        call_command("add_database_server", name, url, stdout=StringIO())
    assert error.value.returncode == 2
    assert not DatabaseServer.objects.filter(name=name).exists()


def test_add_rejects_login_without_createdb(second: DatabaseServer, second_url: str) -> None:
    role = f"weak_{secrets.token_hex(3)}"
    with servers.maintenance(second) as raw:
        raw.execute(f"CREATE ROLE {role} LOGIN")
    weak = second_url.replace("postgres@", f"{role}@")
    with pytest.raises(CommandError, match="CREATEDB"):
        call_command("add_database_server", "weak", weak, stdout=StringIO())


def test_add_rejects_known_server_name(second: DatabaseServer, second_url: str) -> None:
    with pytest.raises(CommandError, match="has this name"):
        call_command("add_database_server", second.name, second_url, stdout=StringIO())
    assert warm_pool.refill(second, 0) == 0


def test_check_counts_connections_of_every_server(second: DatabaseServer, settings: Any) -> None:
    settings.PGBOUNCER = True  # the main server does not count
    assert budget_fits(databases=["default"]) == []
    settings.PLATFORM_HOSTS = 1000
    (message,) = budget_fits(databases=["default"])
    assert (message.id, second.name in message.msg) == ("tenants.E003", True)


def test_check_warns_of_a_server_it_cannot_reach(second: DatabaseServer, settings: Any) -> None:
    settings.PGBOUNCER = True
    sealed = seal_url(second.name, "url_sealed", "postgresql://unknown@127.0.0.1:1/?connect_timeout=1")
    DatabaseServer.objects.filter(pk=second.pk).update(url_sealed=sealed, revision=2)
    assert [message.id for message in budget_fits(databases=["default"])] == ["tenants.W004"]
    DatabaseServer.objects.filter(pk=second.pk).update(url_sealed=second.url_sealed, revision=3)


def test_replace_keeps_values_not_given(second: DatabaseServer, second_url: str) -> None:
    run_command(
        "add_database_server", second.name, second_url, admin_url=f"{second_url}&application_name=a", replace=True
    )
    run_command("change_database_server", second.name, capacity=42, accepts=False)
    run_command("add_database_server", second.name, f"{second_url}&application_name=b", replace=True)
    kept = DatabaseServer.objects.get(pk=second.pk)
    assert (kept.capacity, kept.accepts_tenants, kept.admin_url_sealed is None) == (42, False, False)
    run_command("add_database_server", second.name, second_url, capacity=7, admin_url="", replace=True)
    kept.refresh_from_db()
    assert (kept.capacity, kept.admin_url_sealed) == (7, None)


def test_new_server_has_capacity_of_1000(second_url: str) -> None:
    name = f"default-{secrets.token_hex(3)}"
    assert "up to 1000 tenants" in run_command("add_database_server", name, second_url)
    DatabaseServer.objects.get(name=name).delete()


def test_full_or_closed_server_gets_no_tenant(second: DatabaseServer) -> None:
    assert run_command("change_database_server", second.name, capacity=0) == f"{second.name} takes up to 0 tenants.\n"
    assert provisioning_goes_to() == main_server()
    run_command("change_database_server", second.name, capacity=100_000, accepts=False)
    assert provisioning_goes_to() == main_server()
    run_command("change_database_server", second.name, accepts=True)
    assert provisioning_goes_to() == second
    with pytest.raises(CommandError, match="No database server"):
        run_command("change_database_server", "nowhere", capacity=1)


def provisioning_goes_to() -> DatabaseServer:
    tenant = provisioning.create_tenant(name="Asks", slug=f"asks-{secrets.token_hex(4)}")
    throw_away(tenant)
    return tenant.database.server


def test_check_names_servers_that_tenants_cannot_leave_online(
    second: DatabaseServer, replicating: DatabaseServer
) -> None:
    texts = [message.msg for message in servers_allow_online_moves(databases=["default"])]
    assert f"Tenants of {second.name} cannot be moved while they are in use: wal_level is minimal." in texts
    assert [text for text in texts if replicating.name in text] == []
    assert servers_allow_online_moves(databases=None) == []

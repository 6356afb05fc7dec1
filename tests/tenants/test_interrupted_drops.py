"""A database that an interrupted DROP DATABASE left invalid (`datconnlimit = -2`): only another DROP can touch it."""

from tenants.copies import database_names, databases
from tenants.database_servers import servers
from tenants.lifecycle import provisioning, warm_pool
from tenants.models import DatabaseServer, Tenant, TenantDatabase, WarmDatabase
from tests.copies import change_mapping
from tests.tenants.conftest import check_tenants, databases_on, invalidate, run_command


def tenant_on(server: DatabaseServer, name: str) -> Tenant:
    return provisioning.create_tenant(name=name, server=server.name)


def test_repair_finishes_interrupted_drops_only(second: DatabaseServer) -> None:
    healthy, left, broken = (tenant_on(second, name) for name in ("Healthy", "Left", "Broken"))
    change_mapping(left.pk, status="deleting")
    warm_pool.refill(second, 2)
    spare = WarmDatabase.objects.filter(server=second, ready=True).first()
    assert spare is not None
    copy, orphan = database_names.new_database_name(), database_names.new_database_name()
    WarmDatabase.objects.create(server=second, name=copy, schema_version=f"for {healthy.pk}")
    with servers.maintenance(second) as raw:
        for database in (copy, orphan):
            raw.execute(f"CREATE DATABASE {database} TEMPLATE template0")
    gone = [left.database.name, broken.database.name, spare.name, copy, orphan]
    for database in gone:
        invalidate(second, database)
    check_tenants(repair=True, yes=True)
    assert not databases_on(second) & set(gone)
    states = dict(TenantDatabase.objects.filter(server=second).values_list("tenant_id", "status"))
    assert states == {healthy.pk: "active", left.pk: "deleted", broken.pk: "failed"}
    assert not WarmDatabase.objects.filter(name__in=gone).exists()
    assert [line.split("\t")[0] for line in check_tenants(second.name)] == ["failed"]


def test_repair_recreates_invalid_template(second: DatabaseServer) -> None:
    template = databases.ensure_template(second)
    invalidate(second, template)
    assert len(check_tenants(template)) == 1
    check_tenants(repair=True, yes=True)
    assert tenant_on(second, "After").database.name in databases_on(second)


def test_create_replaces_invalid_template(second: DatabaseServer, no_spares: None) -> None:
    invalidate(second, databases.ensure_template(second))
    tenant = tenant_on(second, "Despite")
    assert TenantDatabase.objects.get(pk=tenant.pk).status == "active"


def test_refill_recreates_invalid_spare(second: DatabaseServer) -> None:
    warm_pool.refill(second, 1)
    spare = WarmDatabase.objects.get(server=second)
    WarmDatabase.objects.filter(pk=spare.pk).update(ready=False)
    invalidate(second, spare.name)
    assert warm_pool.refill(second, 1) == 1
    with servers.maintenance(second) as raw:
        assert databases.exists(raw, spare.name)


def test_delete_tenant_drops_an_invalid_database(second: DatabaseServer) -> None:
    tenant = tenant_on(second, "Invalid")
    invalidate(second, tenant.database.name)
    run_command("delete_tenant", tenant.slug, yes=True)
    assert tenant.database.name not in databases_on(second)
    assert TenantDatabase.objects.get(pk=tenant.pk).status == "deleted"

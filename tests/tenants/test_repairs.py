"""`check_tenants` finds problems, repairs them, and drops orphans only when asked to."""

import secrets
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError
from psycopg import sql

from tenants.consistency import repairs
from tenants.copies import database_names, databases
from tenants.copies.databases import template_prefix
from tenants.database_servers import marks, servers
from tenants.lifecycle import warm_pool
from tenants.lifecycle.capacity import main_server
from tenants.models import DatabaseServer, Tenant, TenantDatabase, WarmDatabase
from tests.copies import change_mapping, change_tenant
from tests.tenants.conftest import check_tenants, connect_to, databases_on, run_command


def found_about(subject: str) -> list[str]:
    return [str(finding.kind) for finding in repairs.find_problems() if finding.subject == subject]


def make_database(name: str) -> None:
    with servers.maintenance(main_server()) as raw:
        raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))


def rename_database(name: str, to: str) -> None:
    with servers.maintenance(main_server()) as raw:
        raw.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name])
        raw.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(name), sql.Identifier(to)))


def drop_database(name: str) -> None:
    with servers.maintenance(main_server()) as raw:
        databases.drop(raw, name)


def test_check_reports_no_healthy_tenant(new_bare_tenant: Callable[[], Tenant]) -> None:
    assert found_about(new_bare_tenant().slug) == []


def test_orphan_is_dropped_only_with_option() -> None:
    name = database_names.new_database_name()
    make_database(name)
    (line,) = check_tenants(name)
    assert line.startswith(f"orphan database\tmain\t{name}\t")
    assert check_tenants(name, repair=True, yes=True) == [line]
    assert name in databases_on(main_server())
    assert check_tenants(name, drop_orphans=True, yes=True) == []
    assert name not in databases_on(main_server())
    assert found_about(name) == []


def test_drop_orphans_needs_confirmation() -> None:
    name = database_names.new_database_name()
    make_database(name)
    with pytest.raises(CommandError, match="--yes"):
        check_tenants(drop_orphans=True)
    assert name in databases_on(main_server())
    drop_database(name)


def make_marked_database(tenant_id: UUID) -> str:
    """Create a database with the mark of a tenant, which the global database lists nowhere."""
    name, main = database_names.new_database_name(), main_server()
    with servers.maintenance(main) as raw:
        databases.copy_template(raw, main, name)
    marks.stamp(main, name, tenant_id)
    return name


def test_database_of_an_unknown_tenant_is_not_dropped() -> None:
    name = make_marked_database(uuid4())
    try:
        (line,) = check_tenants(name, drop_orphans=True, repair=True, yes=True)
        assert "a tenant that the global database does not know" in line
        assert f'DROP DATABASE "{name}"' in line
        assert name in databases_on(main_server())
    finally:
        drop_database(name)


def test_another_database_of_a_tenant_is_not_dropped(new_bare_tenant: Callable[[], Tenant]) -> None:
    # As after a restored global database: the tenant was moved or restored since, and this one is the newest.
    name = make_marked_database(new_bare_tenant().pk)
    try:
        (line,) = check_tenants(name, drop_orphans=True, yes=True)
        assert "may be the newer one" in line
        assert name in databases_on(main_server())
    finally:
        drop_database(name)


def test_database_of_a_deleted_tenant_is_dropped(new_bare_tenant: Callable[[], Tenant]) -> None:
    tenant = new_bare_tenant()
    run_command("delete_tenant", tenant.slug, yes=True, no_final_backup=True)
    name = make_marked_database(tenant.pk)
    assert "orphan database" in check_tenants(name)[0]
    assert check_tenants(name, drop_orphans=True, yes=True) == []
    assert name not in databases_on(main_server())


def test_missing_database_marks_tenant_failed_until_it_returns(
    new_bare_tenant: Callable[[], Tenant],
) -> None:
    tenant = new_bare_tenant()
    name = tenant.database.name
    rename_database(name, f"{name}_away")
    assert found_about(tenant.slug) == ["database missing"]
    (line,) = check_tenants(tenant.slug, repair=True, yes=True)
    assert line.startswith("failed\t")
    mapping = TenantDatabase.objects.get(pk=tenant.pk)
    assert (mapping.status, mapping.reason, mapping.copies_lag) == ("failed", "the database is missing", True)
    assert found_about(tenant.slug) == ["failed"]
    # Changes of a failed tenant are written when its database is back.
    change_tenant(tenant.pk, name="Changed Since")
    make_database(name)
    check_tenants(repair=True, yes=True)
    assert TenantDatabase.objects.get(pk=tenant.pk).status == "failed"
    drop_database(name)
    rename_database(f"{name}_away", name)
    check_tenants(repair=True, yes=True)
    mapping.refresh_from_db()
    assert (mapping.status, mapping.copies_lag) == ("active", False)
    with connect_to(tenant) as raw:
        written = raw.execute("SELECT name, status FROM tenants_tenantrecord").fetchone()
    assert written == ("Changed Since", "active")


def test_suspended_tenant_without_database_stays_suspended(new_bare_tenant: Callable[[], Tenant]) -> None:
    tenant = new_bare_tenant()
    run_command("suspend_tenant", tenant.slug)
    drop_database(tenant.database.name)
    check_tenants(repair=True, yes=True)
    mapping = TenantDatabase.objects.get(pk=tenant.pk)
    assert (mapping.status, mapping.reason) == ("suspended", "the database is missing")


@pytest.mark.parametrize(
    ("left", "kind"),
    [("migrating", "interrupted migration"), ("moving", "interrupted move"), ("deleting", "interrupted deletion")],
)
def test_repair_finishes_interrupted_jobs(left: str, kind: str, new_bare_tenant: Callable[[], Tenant]) -> None:
    tenant = new_bare_tenant()
    change_mapping(tenant.pk, status=left)
    assert found_about(tenant.slug) == [kind]
    check_tenants(repair=True, yes=True)
    ended = TenantDatabase.objects.get(pk=tenant.pk).status
    assert ended == ("deleted" if left == "deleting" else "active")


def test_repair_skips_running_job(new_bare_tenant: Callable[[], Tenant]) -> None:
    tenant = new_bare_tenant()
    change_mapping(tenant.pk, status="migrating")
    with databases.job_lock(main_server(), tenant.pk):
        assert found_about(tenant.slug) == []
    assert found_about(tenant.slug) == ["interrupted migration"]


def test_finished_job_releases_its_lock() -> None:
    subject = secrets.token_hex(8)
    with servers.maintenance(main_server()) as raw:
        for _ in range(100):
            with databases.job_lock(main_server(), subject):
                pass
            assert not databases.is_job_running(raw, subject)


def test_repair_drops_old_templates_and_keeps_newer_ones() -> None:
    old, newer, unfinished = (
        f"{template_prefix()}{version}" for version in ("0_0123456789ab", "9999_0123456789ab", "9999_ab_making")
    )
    for name in (old, newer, unfinished):
        make_database(name)
    # As templates are: nothing in them can be read.
    with servers.maintenance(main_server()) as raw:
        raw.execute(sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS false").format(sql.Identifier(old)))
    check_tenants(repair=True, yes=True)
    assert databases_on(main_server()) & {old, newer, unfinished} == {newer}
    drop_database(newer)


def test_repair_forgets_missing_spare() -> None:
    warm_pool.refill(main_server(), 1)
    spare = WarmDatabase.objects.filter(ready=True).first()
    assert spare is not None
    drop_database(spare.name)
    assert found_about(spare.name) == ["missing spare"]
    check_tenants(repair=True, yes=True)
    assert not WarmDatabase.objects.filter(name=spare.name).exists()


def test_check_names_unreachable_server() -> None:
    from tenants.database_servers.servers import seal_url

    name = f"dark-{secrets.token_hex(3)}"
    url = "postgresql://unknown:hidden@127.0.0.1:1/?connect_timeout=1"
    DatabaseServer.objects.create(
        name=name, host="dark", accepts_tenants=False, url_sealed=seal_url(name, "url_sealed", url)
    )
    (line,) = check_tenants(name)
    DatabaseServer.objects.get(name=name).delete()
    assert line.startswith(f"server unreachable\t{name}\t")
    assert "hidden" not in line

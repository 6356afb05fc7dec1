"""A new release migrates 100 tenants, one of which fails."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.models import Q
from django.test.utils import CaptureQueriesContext

from tenants.database_servers.servers import seal_url
from tenants.entering.schema import schema_version
from tenants.jobs import fleet
from tenants.lifecycle.capacity import main_server
from tenants.models import DatabaseServer, Tenant, TenantDatabase
from tests.tenants.conftest import AnotherProcess, connect_to, make_tenants, run_command

# Creating many tenants is slow on a busy machine.
pytestmark = pytest.mark.timeout(300)
FLEET, STUBBORN = 100, 37
TABLE = "newer_release_note"


@pytest.fixture(scope="module")
def many_tenants(django_db_setup: None, django_db_blocker: Any) -> list[Tenant]:
    """100 tenants, and some more for single tests."""
    with django_db_blocker.unblock():
        return make_tenants(FLEET + 45)


@pytest.fixture(scope="module")
def ships(many_tenants: list[Tenant]) -> list[Tenant]:
    """The 100 tenants that the new release migrates. The 37th already has its new table."""
    ships = many_tenants[:FLEET]
    with connect_to(ships[STUBBORN - 1]) as raw:
        raw.execute(f"CREATE TABLE {TABLE} (x int)")
    return ships


@pytest.fixture(autouse=True)
def _back_to_this_release(many_tenants: list[Tenant]) -> Iterator[None]:
    yield
    slugs = [tenant.slug for tenant in many_tenants]
    TenantDatabase.objects.filter(tenant__slug__in=slugs).update(schema_version=schema_version(), status="active")


def only(ships: list[Tenant]) -> list[str]:
    return [word for ship in ships for word in ("--only", ship.slug)]


def mapping_of(ship: Tenant) -> TenantDatabase:
    return TenantDatabase.objects.get(pk=ship.pk)


def has_table(ship: Tenant) -> bool:
    with connect_to(ship) as raw:
        return raw.execute("SELECT to_regclass(%s) IS NOT NULL", [TABLE]).fetchone() == (True,)


def test_one_failing_tenant_of_a_hundred_stops_no_other(ships: list[Tenant], newer_release: AnotherProcess) -> None:
    first = newer_release.run("migrate_tenants", *only(ships))
    stubborn = ships[STUBBORN - 1]
    assert first.code == 1
    assert f"{FLEET - 1} migrated, 0 skipped, 1 failed." in first.said
    assert f"{stubborn.slug}\tmain\tnewer_release.0001_initial: DuplicateTable" in first.said
    left = mapping_of(stubborn)
    assert (left.status, left.schema_version) == ("active", schema_version())
    assert "DuplicateTable" in left.reason
    with connect_to(stubborn) as raw:
        assert raw.execute("SELECT count(*) FROM django_migrations WHERE app = 'newer_release'").fetchone() == (0,)
    assert all(has_table(ship) for ship in ships)
    assert TenantDatabase.objects.filter(pk__in=[s.pk for s in ships]).exclude(status="active").count() == 0

    again = newer_release.run("migrate_tenants", *only(ships))
    assert again.code == 1
    assert again.said.splitlines()[0].startswith(f"1/1 {stubborn.slug} failed")

    with connect_to(stubborn) as raw:
        raw.execute(f"DROP TABLE {TABLE}")
    mended = newer_release.run("migrate_tenants", *only(ships))
    assert (mended.code, mapping_of(stubborn).reason) == (0, "")
    assert "1 migrated, 0 skipped, 0 failed." in mended.said
    assert newer_release.run("migrate_tenants", *only(ships)).said == "0 migrated, 0 skipped, 0 failed.\n"


def test_failing_canary_stops_run(many_tenants: list[Tenant], newer_release: AnotherProcess) -> None:
    canary, *others = many_tenants[FLEET : FLEET + 3]
    with connect_to(canary) as raw:
        raw.execute(f"CREATE TABLE {TABLE} (x int)")
    ended = newer_release.run("migrate_tenants", *only([canary, *others]))
    assert ended.code == 1
    assert "The canary failed: 2 tenants not tried." in ended.said
    assert not any(has_table(other) for other in others)
    # A tenant that has failed is no longer the canary.
    assert newer_release.run("migrate_tenants", *only([canary, *others])).code == 1
    assert all(has_table(other) for other in others)


def test_migrate_keeps_suspended_tenant_suspended(many_tenants: list[Tenant], newer_release: AnotherProcess) -> None:
    tenant = many_tenants[FLEET + 10]
    run_command("suspend_tenant", tenant.slug)
    assert newer_release.run("migrate_tenants", "--only", tenant.slug).code == 0
    assert mapping_of(tenant).status == "suspended"
    assert has_table(tenant)
    run_command("resume_tenant", tenant.slug)


@pytest.mark.parametrize(("step", "number"), [("migrating", 20), ("migrated", 21)])
def test_next_run_continues_killed_migration(
    step: str, number: int, many_tenants: list[Tenant], newer_release: AnotherProcess
) -> None:
    tenant = many_tenants[FLEET + number]
    command = ["migrate_tenants", "--only", tenant.slug]
    assert newer_release.run(*command, kill_after=step).code == 9
    assert mapping_of(tenant).status == "migrating"
    assert newer_release.run("check_tenants").code == 1
    assert newer_release.run(*command).code == 0
    assert mapping_of(tenant).status == "active"
    assert has_table(tenant)


def test_dry_run_changes_nothing(many_tenants: list[Tenant], newer_release: AnotherProcess) -> None:
    tenant = many_tenants[FLEET + 30]
    ended = newer_release.run("migrate_tenants", "--dry-run", "--only", tenant.slug)
    assert ended.code == 0
    assert tenant.slug in ended.said
    assert "1 tenant behind" in ended.said
    assert mapping_of(tenant).schema_version == schema_version()
    assert not has_table(tenant)


def test_unreachable_canary_stops_no_other_tenant(many_tenants: list[Tenant], newer_release: AnotherProcess) -> None:
    dark, other = many_tenants[FLEET + 31 : FLEET + 33]
    name = f"dark-{secrets.token_hex(3)}"
    url = "postgresql://unknown@127.0.0.1:1/?connect_timeout=1"
    server = DatabaseServer.objects.create(
        name=name, host="dark", accepts_tenants=False, url_sealed=seal_url(name, "url_sealed", url)
    )
    home = mapping_of(dark).server_id
    TenantDatabase.objects.filter(pk=dark.pk).update(server=server)
    ended = newer_release.run("migrate_tenants", *only([dark, other]))
    TenantDatabase.objects.filter(pk=dark.pk).update(server=home)
    server.delete()
    assert (ended.code, "1 migrated, 0 skipped, 1 failed." in ended.said) == (1, True)
    assert has_table(other)


def test_unknown_slug_is_rejected(newer_release: AnotherProcess) -> None:
    ended = newer_release.run("migrate_tenants", "--only", "there-is-no-such-tenant")
    assert ended.code == 2
    assert "there-is-no-such-tenant" in ended.said


def test_migrate_skips_tenant_with_running_job(many_tenants: list[Tenant]) -> None:
    from tenants.copies import databases

    tenant = many_tenants[FLEET + 40]
    TenantDatabase.objects.filter(pk=tenant.pk).update(schema_version="0-000000000000")
    with databases.job_lock(main_server(), tenant.pk):
        report = fleet.migrate_tenants(only=[tenant.slug])
    assert [outcome.result for outcome in report.outcomes] == ["skipped"]
    assert mapping_of(tenant).status == "active"


def test_migrate_without_work_is_one_statement(django_db_setup: None) -> None:
    server = main_server()
    tenants = [Tenant(name="Row", slug=f"row-{number}") for number in range(1000)]
    Tenant.objects.bulk_create(tenants)
    rows = [
        TenantDatabase(tenant=t, server=server, name=f"row_{t.slug}", status="active", schema_version=schema_version())
        for t in tenants
    ]
    TenantDatabase.objects.bulk_create(rows)
    # Tenants of other tests that were behind before are still behind.
    left = TenantDatabase.objects.filter(~Q(schema_version=schema_version()) | Q(status="migrating"))
    behind = {pk: facts for pk, *facts in left.values_list("pk", "schema_version", "status")}
    TenantDatabase.objects.filter(pk__in=behind).update(schema_version=schema_version(), status="suspended")
    try:
        with CaptureQueriesContext(connection) as statements:
            assert run_command("migrate_tenants") == "0 migrated, 0 skipped, 0 failed.\n"
        assert len(statements) == 1
    finally:
        for pk, (version, status) in behind.items():
            TenantDatabase.objects.filter(pk=pk).update(schema_version=version, status=status)
        Tenant.objects.filter(pk__in=[tenant.pk for tenant in tenants]).delete()

"""Regions: a tenant that is bound to one is created, moved and restored there only, and servers are evened out inside one."""

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError
from django.db import connections, transaction

from tenants.errors import WrongRegion
from tenants.jobs import rebalancing
from tenants.lifecycle.capacity import add_database_server, change_database_server, main_server
from tenants.models import DatabaseServer, FinalBackup, Tenant, TenantDatabase
from tests.machine.conftest import within
from tests.tenants.conftest import AnotherProcess, run_command, throw_away
from tests.tenants.test_relocation import at_the_step, mapping_of
from tests.world import Api, TestTenant, build_tenant
from userflow.tenants.actions import open_tenant


@pytest.fixture
def eu(second: DatabaseServer) -> DatabaseServer:
    """The second server, in the region eu."""
    return change_database_server(name=second.name, region="eu")


@pytest.fixture
def us() -> Iterator[DatabaseServer]:
    """The main server, in the region us."""
    yield change_database_server(name=main_server().name, region="us")
    change_database_server(name=main_server().name, region="")


@pytest.fixture
def slugs() -> Iterator[list[str]]:
    """Slugs for tenants that are deleted after the test."""
    mark = secrets.token_hex(4)
    found = [f"region-{mark}-{number}" for number in range(4)]
    yield found
    for tenant in Tenant.objects.filter(slug__in=found):
        throw_away(tenant)


@pytest.fixture
def settled(django_db_setup: None) -> Iterator[TestTenant]:
    """A tenant on the main server, which is in no region."""
    tenant = build_tenant("regional")
    yield tenant
    throw_away(tenant.row)


def server_of(slug: str) -> DatabaseServer:
    return TenantDatabase.objects.select_related("server").get(tenant__slug=slug).server


def rejected(*command: str, **options: Any) -> str:
    """Return the message of a command that ends with exit code 2."""
    with pytest.raises(CommandError) as error:
        run_command(*command, **options)
    assert error.value.returncode == 2
    return str(error.value)


def bind(operator: Api, tenant: TestTenant, region: str | None) -> Any:
    return operator.patch(f"/uflow/admin/tenants/{tenant.id}/settings", {"settings": {"region": region}})


def test_bound_tenant_is_created_in_its_region(eu: DatabaseServer, slugs: list[str]) -> None:
    change_database_server(name=eu.name, capacity=5)  # so that the main server has more room
    run_command("create_tenant", "Acme", "--slug", slugs[0], "--region", "eu")
    run_command("create_tenant", "Zephyr", "--slug", slugs[1])
    assert (server_of(slugs[0]), server_of(slugs[1])) == (eu, main_server())
    main = main_server().name
    said = rejected("create_tenant", "Acme", "--slug", slugs[2], "--region", "eu", "--server", main)
    assert (
        said
        == f"The tenant is bound to the region eu, and the database server {main} is in no region that the platform knows."
    )
    said = rejected("create_tenant", "Acme", "--slug", slugs[2], "--region", "mars")
    assert "No database server is in the region mars. Regions: eu." in said
    change_database_server(name=eu.name, capacity=1)
    with pytest.raises(CommandError, match="No database server in the region eu has room"):
        run_command("create_tenant", "Acme", "--slug", slugs[2], "--region", "eu")
    assert not Tenant.objects.filter(slug=slugs[2]).exists()


def test_bound_tenant_does_not_move_out(
    settled: TestTenant, us: DatabaseServer, eu: DatabaseServer, operator: Api
) -> None:
    assert bind(operator, settled, "us").status_code == 200
    assert "is bound to the region us" in rejected("move_tenant", settled.slug, eu.name)
    assert (mapping_of(settled).server, mapping_of(settled).status) == (us, "active")
    assert bind(operator, settled, None).status_code == 200
    run_command("move_tenant", settled.slug, eu.name)
    assert mapping_of(settled).server == eu


def test_tenant_is_bound_only_where_it_is(settled: TestTenant, eu: DatabaseServer, operator: Api) -> None:
    response = bind(operator, settled, "eu")
    assert response.status_code == 400
    (said,) = response.json()["details"]["settings.region"]
    assert said.endswith("Move it first.")
    assert bind(operator, settled, "No Region").status_code == 400
    own = settled.api.patch(f"/uflow/admin/tenants/{settled.id}/settings", {"settings": {"region": None}})
    assert own.status_code == 400
    run_command("move_tenant", settled.slug, eu.name)
    assert bind(operator, settled, "eu").json()["effective"]["region"] == "eu"


def test_tenant_bound_during_its_move_stays(replicating: DatabaseServer, eu: DatabaseServer, operator: Api) -> None:
    us = change_database_server(name=replicating.name, region="us")
    tenant = build_tenant("regional", server=us.name)
    person = tenant.register()
    # Before the pause: in it the tenant cannot be changed.
    with at_the_step("caught up", lambda: bind(operator, tenant, "us")):
        assert "is bound to the region us" in rejected("move_tenant", tenant.slug, eu.name)
    assert (mapping_of(tenant).server, mapping_of(tenant).status) == (us, "active")
    assert tenant.sign_in(person)["access_token"]
    throw_away(tenant.row)


def test_tenant_is_not_bound_in_the_pause_of_its_move(
    replicating: DatabaseServer, eu: DatabaseServer, operator: Api
) -> None:
    us = change_database_server(name=replicating.name, region="us")
    tenant = build_tenant("regional", server=us.name)
    codes: list[str] = []
    with at_the_step("verified", lambda: codes.append(bind(operator, tenant, "us").json()["code"])):
        run_command("move_tenant", tenant.slug, eu.name, offline=True)
    assert (codes, mapping_of(tenant).server) == (["tenant_busy"], eu)


def test_server_with_bound_tenants_keeps_its_region(eu: DatabaseServer, slugs: list[str]) -> None:
    run_command("create_tenant", "Acme", "--slug", slugs[0], "--region", "eu")
    said = rejected("change_database_server", eu.name, region="us")
    assert said == f"{slugs[0]}, which is on {eu.name}, is bound to the region eu. Move it first."
    assert "It is in the region eu." in run_command("change_database_server", eu.name, capacity=7)
    run_command("delete_tenant", slugs[0], yes=True, no_final_backup=True)
    assert "It is in the region us." in run_command("change_database_server", eu.name, region="us")


def opened_while_region_changes(server: DatabaseServer, slug: str) -> None:
    """Open a tenant that is bound to eu while another transaction moves the server to us, and is committed later."""

    def open_bound() -> None:
        try:
            open_tenant(name="Acme", slug=slug, tenant_settings={"region": "eu"})
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            change_database_server(name=server.name, region="us")
            opening = pool.submit(open_bound)
            within(20, lambda: opening.done() or blocks_another())
        opening.result()


def blocks_another() -> bool:
    """Return whether another transaction waits for this one."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid)))"
        )
        return bool(cursor.fetchone() == (True,))


def test_region_that_changes_during_creation_is_noticed(eu: DatabaseServer, slugs: list[str]) -> None:
    with pytest.raises(WrongRegion):
        opened_while_region_changes(eu, slugs[0])
    assert not Tenant.objects.filter(slug=slugs[0]).exists()


def test_region_that_changes_while_creation_is_finished(
    eu: DatabaseServer, slugs: list[str], another_process: AnotherProcess
) -> None:
    another_process.run("create_tenant", "A", "--slug", slugs[0], "--server", eu.name, kill_after="mapped")
    with pytest.raises(WrongRegion):
        opened_while_region_changes(eu, slugs[0])
    assert Tenant.objects.get(slug=slugs[0]).settings == {}


def test_deleted_tenant_returns_to_its_region(
    eu: DatabaseServer, slugs: list[str], settings: Any, tmp_path: Path
) -> None:
    settings.DELETED_TENANT_BACKUP_DAYS, settings.BACKUP_FOLDER = 7, tmp_path
    run_command("create_tenant", "Acme", "--slug", slugs[0], "--region", "eu")
    tenant = Tenant.objects.get(slug=slugs[0])
    run_command("delete_tenant", slugs[0], yes=True)
    file = FinalBackup.objects.get(pk=tenant.pk).file
    assert "is bound to the region eu" in rejected("restore_deleted_tenant", file, server=main_server().name)
    change_database_server(name=eu.name, capacity=1)
    run_command("restore_deleted_tenant", file)
    assert server_of(slugs[0]) == eu


def test_region_changed_during_undeletion_is_noticed(
    eu: DatabaseServer, slugs: list[str], settings: Any, tmp_path: Path
) -> None:
    settings.DELETED_TENANT_BACKUP_DAYS, settings.BACKUP_FOLDER = 7, tmp_path
    run_command("create_tenant", "Acme", "--slug", slugs[0], "--region", "eu")
    tenant = Tenant.objects.get(slug=slugs[0])
    run_command("delete_tenant", slugs[0], yes=True)
    file = FinalBackup.objects.get(pk=tenant.pk).file
    with at_the_step("read in", lambda: change_database_server(name=eu.name, region="us")):
        assert "is bound to the region eu" in rejected("restore_deleted_tenant", file)
    assert FinalBackup.objects.filter(pk=tenant.pk).exists()


# --- labels ----------------------------------------------------------------------------------------------------------


def test_new_tenant_is_on_a_server_with_all_labels(second: DatabaseServer, slugs: list[str]) -> None:
    change_database_server(name=second.name, labels=["ssd"], capacity=100_000)
    change_database_server(name=main_server().name, labels=["ssd", "premium"])
    try:
        run_command("create_tenant", "Plain", slug=slugs[0])
        run_command("create_tenant", "Premium", slug=slugs[1], labels=["premium", "ssd"])
        with pytest.raises(CommandError, match=r"with nvme has room"):
            run_command("create_tenant", "None", slug=slugs[2], labels=["nvme"])
        with pytest.raises(CommandError, match="does not have the label premium"):
            run_command("create_tenant", "None", slug=slugs[2], labels=["premium"], server=second.name)
    finally:
        change_database_server(name=main_server().name, labels=[])
    assert [server_of(slug).name for slug in slugs[:2]] == [second.name, main_server().name]
    assert not Tenant.objects.filter(slug=slugs[2]).exists()


def test_command_sets_labels_of_server(second: DatabaseServer) -> None:
    assert "Labels: nvme, ssd." in run_command("change_database_server", second.name, "--labels", "ssd, nvme,ssd")
    assert "Labels: nvme, ssd." in run_command("change_database_server", second.name, "--accepts")
    assert "Labels" not in run_command("change_database_server", second.name, "--labels", "")
    with pytest.raises(CommandError, match="labels are separated by commas"):
        run_command("change_database_server", second.name, "--labels", "ssd,,x y")


# --- rebalancing -----------------------------------------------------------------------------------------------------


@pytest.fixture
def region() -> Iterator[str]:
    """A region whose servers exist as rows only."""
    name = f"planned-{secrets.token_hex(4)}"
    yield name
    Tenant.objects.filter(database__server__region=name).delete()
    DatabaseServer.objects.filter(region=name).delete()


def server(region: str, name: str, tenants: int, **options: Any) -> str:
    """Write a server and its tenants; return its name."""
    row = DatabaseServer.objects.create(name=f"{region}-{name}", host="none", region=region, **options)
    for _ in range(tenants):
        tenant = Tenant.objects.create(name="Planned", slug=f"planned-{uuid4().hex}")
        TenantDatabase.objects.create(tenant=tenant, server=row, name=f"planned_{uuid4().hex}", status="active")
    return row.name


def planned(region: str, **options: Any) -> list[tuple[str, str]]:
    """Return the planned moves inside a region: from which server to which."""
    return [(move.source, move.target) for move in rebalancing.plan(**options) if move.source.startswith(region)]


def test_servers_become_equally_full(region: str) -> None:
    full, half = server(region, "full", 8, capacity=8), server(region, "half", 2, capacity=8)
    large = server(region, "large", 2, capacity=16)
    moves = planned(region)
    # 12 tenants for 32 places: 3, 3 and 6.
    assert sorted(moves) == sorted([(full, half)] + [(full, large)] * 4)


def test_servers_that_differ_by_one_tenant_are_left(region: str) -> None:
    server(region, "a", 3, capacity=10)
    server(region, "b", 2, capacity=10)
    assert planned(region) == []


def test_closed_server_gets_none_and_keeps_its_own(region: str) -> None:
    server(region, "closed", 5, capacity=5, accepts_tenants=False)
    server(region, "a", 4, capacity=10)
    server(region, "closed-too", 0, capacity=10, accepts_tenants=False)
    assert planned(region) == []


def test_drained_server_is_emptied_as_far_as_there_is_room(region: str) -> None:
    old, new = server(region, "old", 3, capacity=9), server(region, "new", 0, capacity=2)
    assert planned(region, drain=[old]) == [(old, new), (old, new), (old, "")]


def test_drain_names_tenants_that_stay(region: str) -> None:
    old = server(region, "old", 2, capacity=9)
    server(region, "new", 0, capacity=9)
    TenantDatabase.objects.filter(server__name=old).update(status="failed")
    (move, _) = (move for move in rebalancing.plan(drain=[old]) if move.source == old)
    assert (move.target, move.obstacle) == ("", "it is failed, not active or suspended")


def test_tenants_keep_the_labels_of_their_server(region: str) -> None:
    old = server(region, "old", 4, capacity=10, labels=["ssd"])
    new = server(region, "new", 0, capacity=10, labels=["ssd"])
    server(region, "plain", 0, capacity=10)
    server(region, "other", 0, capacity=10, labels=["hdd", "ssd"])
    assert planned(region) == [(old, new), (old, new)]


def test_no_tenant_leaves_the_region_of_its_server(region: str) -> None:
    other = f"{region}-other"
    old = server(region, "old", 2, capacity=2)
    DatabaseServer.objects.create(name=f"{other}-empty", host="none", region=other, capacity=100)
    try:
        assert planned(region) == []
        assert planned(region, drain=[old]) == [(old, "")] * 2
    finally:
        DatabaseServer.objects.filter(region=other).delete()


def test_drain_moves_the_tenants(region: str, second: DatabaseServer, second_url: str, slugs: list[str]) -> None:
    change_database_server(name=second.name, region=region)
    for slug in slugs[:2]:
        run_command("create_tenant", "Acme", "--slug", slug, "--server", second.name)
    third = add_database_server(name=f"third-{region}", url=second_url, capacity=100_000, region=region)
    listed = run_command("rebalance_tenants", drain=[second.name])
    assert "2 moves. Nothing was changed" in listed
    assert server_of(slugs[0]) == second
    said = run_command("rebalance_tenants", drain=[second.name], apply=True, yes=True, limit=1)
    assert said.endswith("1 of 1 tenant moved.\n")
    run_command("rebalance_tenants", drain=[second.name], apply=True, yes=True)
    assert [server_of(slug) for slug in slugs[:2]] == [third] * 2
    assert "no-such-server" in rejected("rebalance_tenants", drain=["no-such-server"])
    for slug in slugs[:2]:
        run_command("delete_tenant", slug, yes=True, no_final_backup=True)

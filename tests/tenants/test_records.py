"""The record of a tenant in its own database is equal to the global row after each change, or behind until the repair."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db.models import F
from django.test.utils import override_settings
from django.utils.timezone import now

from tenants.entering.context import in_tenant
from tenants.entering.schema import schema_version
from tenants.entering.target import DatabaseTarget, in_target
from tenants.lifecycle import final_backups, warm_pool
from tenants.lifecycle.capacity import main_server
from tenants.models import DatabaseServer, Tenant, TenantDatabase, TenantRecord, WarmDatabase, WebhookTenant
from tenants.records.reconciling import Round
from tenants.records.tenant_records import unlist_webhooks
from tests.copies import change_mapping
from tests.openid.sign_in_domains import DOMAINS, set_sign_in, sign_in_domain
from tests.tenants.conftest import connect_to, run_command
from tests.tenants.faults.test_one_tenant import behind as schema_behind
from tests.tenants.faults.test_one_tenant import gone
from tests.tenants.records import client_copies, commits_fail, differing, record_of
from tests.tenants.test_consistency import check
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.world import Api, TestTenant, assert_created, build_tenant
from userflow.accounts.models import TenantClient

New = Callable[[], TestTenant]


def path(tenant: TestTenant) -> str:
    return f"/uflow/admin/tenants/{tenant.id}"


def stored(tenant: TestTenant) -> Tenant:
    return Tenant.objects.select_related("database").get(pk=tenant.id)


def patch(operator: Api, tenant: TestTenant, **changes: Any) -> Any:
    return operator.patch(path(tenant), changes)


def listen(tenant: TestTenant) -> str:
    body = {"url": "http://127.0.0.1:9/", "events": ["import.finished"]}
    with override_settings(WEBHOOK_ALLOWED_NETWORKS=["127.0.0.0/8"], WEBHOOK_PLAIN_HTTP=True):
        return str(assert_created(tenant.api.post("/uflow/webhooks/endpoints", body))["id"])


# --- each change -----------------------------------------------------------------------------------------------------


def test_new_tenant_has_records(new_tenant: New) -> None:
    tenant = new_tenant()
    record = record_of(tenant)
    assert differing(tenant) == []
    assert (record.slug, record.name, record.status) == (tenant.slug, tenant.name, "active")
    assert (record.revision, record.placement_revision, record.has_webhooks) == (1, 1, False)
    assert (record.sign_in_domain, record.served_domains, record.settings) == (None, [], {})
    assert record.applied_at is not None
    assert list(client_copies(tenant)) == [str(tenant.client_id)]


def test_spare_has_no_record() -> None:
    warm_pool.refill(main_server(), 1)
    spare = WarmDatabase.objects.filter(ready=True, schema_version=schema_version())[0]
    with in_target(DatabaseTarget.for_maintenance(main_server(), spare.name)):
        record = TenantRecord.objects.get()
        assert (record.revision, record.slug, record.status, record.applied_at) == (0, "", "", None)
        assert not TenantClient.objects.exists()


@pytest.mark.usefixtures("no_spares")
def test_new_tenant_without_spare_has_records(new_tenant: New) -> None:
    tenant = new_tenant()
    assert (record_of(tenant).status, differing(tenant)) == ("active", [])


@pytest.mark.parametrize(
    ("changes", "column", "value"),
    [
        ({"name": "Renamed"}, "name", "Renamed"),
        ({"settings": {"issuer_name": "Acme"}}, "settings", {"issuer_name": "Acme"}),
        ({"status": "suspended"}, "status", "suspended"),
    ],
)
def test_change_of_tenant_is_recorded(
    changes: dict[str, Any], column: str, value: object, operator: Api, new_tenant: New
) -> None:
    tenant, other = new_tenant(), new_tenant()
    response = operator.patch(path(tenant), changes)
    assert response.status_code == 200, response.content
    record = record_of(tenant)
    assert getattr(record, column) == value
    assert (record.revision, stored(tenant).revision) == (2, 2)
    assert differing(tenant) == differing(other) == []
    assert record_of(other).revision == 1


def test_new_slug_is_recorded(operator: Api, new_tenant: New) -> None:
    tenant, slug = new_tenant(), f"renamed-{secrets.token_hex(4)}"
    assert patch(operator, tenant, slug=slug, confirm=tenant.slug).status_code == 200
    assert (record_of(tenant).slug, differing(tenant)) == (slug, [])
    run_command("change_slug", slug, f"{slug}-2", yes=True)
    assert (record_of(tenant).slug, differing(tenant)) == (f"{slug}-2", [])


def test_resumed_tenant_is_recorded(operator: Api, new_tenant: New) -> None:
    tenant = new_tenant()
    patch(operator, tenant, status="suspended")
    # Operators change suspended tenants too.
    assert patch(operator, tenant, name="Asleep").status_code == 200
    assert (record_of(tenant).status, record_of(tenant).name) == ("suspended", "Asleep")
    patch(operator, tenant, status="active")
    assert (record_of(tenant).status, differing(tenant)) == ("active", [])


def test_change_of_nothing_is_no_revision(operator: Api, new_tenant: New) -> None:
    tenant = new_tenant()
    assert patch(operator, tenant, name=tenant.name, settings={}).status_code == 200
    assert (record_of(tenant).revision, stored(tenant).revision) == (1, 1)


def test_sign_in_domain_is_recorded(new_tenant: New, name_server: DnsServer) -> None:
    tenant = new_tenant()
    domain = sign_in_domain(tenant, name_server)
    record = record_of(tenant)
    assert (record.sign_in_domain, record.served_domains) == (domain["domain"], [domain["domain"]])
    assert set_sign_in(tenant, domain, False).status_code == 200
    # Its pages redirect from now on.
    record = record_of(tenant)
    assert (record.sign_in_domain, record.served_domains) == (None, [domain["domain"]])
    assert differing(tenant) == []
    assert tenant.api.delete(f"{DOMAINS}/{domain['id']}").status_code == 200
    assert (record_of(tenant).served_domains, differing(tenant)) == ([], [])


def test_webhooks_are_recorded(new_tenant: New) -> None:
    tenant = new_tenant()
    endpoint = listen(tenant)
    assert (record_of(tenant).has_webhooks, differing(tenant)) == (True, [])
    listen(tenant)
    assert record_of(tenant).revision == 2
    assert tenant.api.delete(f"/uflow/webhooks/endpoints/{endpoint}").status_code == 200
    unlist_webhooks(tenant.id, untouched_since=now())
    assert not WebhookTenant.objects.filter(pk=tenant.id).exists()
    assert (record_of(tenant).has_webhooks, differing(tenant)) == (False, [])


# --- life of a database ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offline", [True, False])
def test_move_is_recorded(offline: bool, replicating: DatabaseServer, second: DatabaseServer) -> None:
    tenant = build_tenant("moved", server=replicating.name)
    said = run_command("move_tenant", tenant.slug, second.name, offline=offline)
    assert ("Online: copying" in said) != offline
    assert stored(tenant).database.server_id == second.pk
    record = record_of(tenant)
    assert (record.placement_revision, record.status, differing(tenant)) == (2, "active", [])


def test_restore_writes_present_records(operator: Api, new_tenant: New, tmp_path: Path) -> None:
    tenant, file = new_tenant(), tmp_path / "tenant.backup"
    clients = f"/clientms/tenants/{tenant.id}/clients"
    deleted, deactivated = (assert_created(tenant.api.post(clients, {"name": "Shop"}))["id"] for _ in range(2))
    run_command("backup_tenant", tenant.slug, str(file))
    assert patch(operator, tenant, name="Since Then").status_code == 200
    assert tenant.api.delete(f"{clients}/{deleted}").status_code == 200
    assert tenant.api.patch(f"{clients}/{deactivated}", {"active": False}).status_code == 200
    created = assert_created(tenant.api.post(clients, {"name": "New shop"}))["id"]
    run_command("restore_tenant", tenant.slug, str(file), yes=True)
    assert (record_of(tenant).name, record_of(tenant).placement_revision) == ("Since Then", 2)
    copies = client_copies(tenant)
    assert copies.keys() == {str(tenant.client_id), deactivated, created}
    assert not copies[deactivated].active
    assert differing(tenant) == []


def test_restored_deleted_tenant_has_present_records(
    operator: Api, new_tenant: New, settings: Any, tmp_path: Path
) -> None:
    settings.DELETED_TENANT_BACKUP_DAYS, settings.BACKUP_FOLDER = 7, tmp_path
    tenant = new_tenant()
    patch(operator, tenant, name="Deleted")
    assert operator.delete(path(tenant), {"confirm": tenant.slug}).status_code == 200
    file = final_backups.deletion_of(tenant.id).file
    slug = f"restored-{secrets.token_hex(4)}"
    run_command("restore_deleted_tenant", file, slug=slug)
    record = record_of(tenant)
    assert (record.slug, record.name, record.status) == (slug, "Deleted", "suspended")
    assert (record.placement_revision, differing(tenant)) == (2, [])


def forget_records(tenant: TestTenant) -> None:
    """Leave the database as the release without records has left it."""
    with connect_to(tenant.row) as raw:
        raw.execute("UPDATE tenants_tenantrecord SET slug = '', name = '', status = '', revision = 0")
        raw.execute("DELETE FROM userflow_tenantclient")


def test_migrate_tenants_fills_records(new_tenant: New) -> None:
    tenant, suspended = new_tenant(), new_tenant()
    for some in (tenant, suspended):
        forget_records(some)
    change_mapping(suspended.id, status="suspended")
    TenantDatabase.objects.filter(pk__in=[tenant.id, suspended.id]).update(schema_version="1-000000000000")
    run_command("migrate_tenants", "--only", tenant.slug, "--only", suspended.slug)
    assert set(
        TenantDatabase.objects.filter(pk__in=[tenant.id, suspended.id]).values_list("schema_version", flat=True)
    ) == {schema_version()}
    assert differing(tenant) == differing(suspended) == []
    assert (record_of(tenant).status, record_of(suspended).status) == ("active", "suspended")
    assert list(client_copies(tenant)) == [str(tenant.client_id)]


# --- the database is away --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{"name": "Never"}, {"settings": {"issuer_name": "Never"}}, {"slug": f"never-{uuid4().hex[:8]}"}]
)
def test_change_needs_the_database(changes: dict[str, Any], operator: Api, new_tenant: New) -> None:
    tenant = new_tenant()
    before = Tenant.objects.values().get(pk=tenant.id)
    with gone(tenant):
        response = patch(operator, tenant, **changes, **({"confirm": tenant.slug} if "slug" in changes else {}))
    assert response.status_code == 503
    assert Tenant.objects.values().get(pk=tenant.id) == before
    assert (record_of(tenant).revision, differing(tenant)) == (1, [])


def test_suspension_does_not_need_the_database(operator: Api, new_tenant: New) -> None:
    tenant = new_tenant()
    with gone(tenant):
        assert patch(operator, tenant, status="suspended").json()["status"] == "suspended"
        assert patch(operator, tenant, status="active").status_code == 503
    assert (record_of(tenant).status, record_of(tenant).revision) == ("active", 1)
    assert stored(tenant).revision > 1
    assert stored(tenant).database.copies_lag
    # Before all others: it is not the turn of any tenant.
    Round().apply_next(1)
    assert (record_of(tenant).status, differing(tenant)) == ("suspended", [])
    assert not stored(tenant).database.copies_lag


def test_suspension_does_not_need_the_schema(operator: Api, new_tenant: New) -> None:
    tenant = new_tenant()
    with connect_to(tenant.row) as raw, schema_behind(tenant):
        raw.execute("ALTER TABLE tenants_tenantrecord RENAME placement_revision TO placement")
        assert patch(operator, tenant, name="Never").json()["code"] == "tenant_upgrading"
        assert patch(operator, tenant, status="suspended").status_code == 200
        raw.execute("ALTER TABLE tenants_tenantrecord RENAME placement TO placement_revision")
    round_of_all()
    assert (record_of(tenant).status, differing(tenant)) == ("suspended", [])


# --- interruptions ---------------------------------------------------------------------------------------------------


def round_of_all() -> list[str]:
    """Let the periodic task visit every tenant; return its error messages."""
    return Round().apply_next(100_000)[1]


def interrupted_change(operator: Api, tenant: TestTenant) -> None:
    with commits_fail("tenants_tenant"):
        assert patch(operator, tenant, name="Interrupted").status_code == 503
    assert (record_of(tenant).name, record_of(tenant).revision) == ("Interrupted", 2)
    assert (stored(tenant).name, stored(tenant).revision) == (tenant.name, 1)


def test_next_change_mends_an_interrupted_one(operator: Api, new_tenant: New) -> None:
    tenant = new_tenant()
    interrupted_change(operator, tenant)
    assert patch(operator, tenant, settings={"issuer_name": "Next"}).status_code == 200
    record = record_of(tenant)
    assert (record.name, record.settings, differing(tenant)) == (tenant.name, {"issuer_name": "Next"}, [])
    # No revision has two meanings.
    assert record.revision == stored(tenant).revision == 3


def test_repair_mends_an_interrupted_change(operator: Api, new_tenant: New) -> None:
    tenant = new_tenant()
    interrupted_change(operator, tenant)
    code, said = check(tenant)
    assert code == 1
    assert "tenant (revision 2, globally 1: name)" in said
    code, said = check(tenant, repair=True, yes=True)
    assert (code, "tenant record: repaired" in said) == (0, True)
    assert (record_of(tenant).name, record_of(tenant).revision, differing(tenant)) == (tenant.name, 3, [])


def test_periodic_task_mends_an_interrupted_change(operator: Api, new_tenant: New) -> None:
    tenant = new_tenant()
    interrupted_change(operator, tenant)
    round_of_all()
    assert (record_of(tenant).name, differing(tenant)) == (tenant.name, [])


def test_round_continues_after_a_broken_database(operator: Api, new_tenant: New) -> None:
    broken, tenant = sorted((new_tenant(), new_tenant()), key=lambda made: made.id)
    for some in (broken, tenant):
        interrupted_change(operator, some)
    with gone(broken):
        (problem,) = [problem for problem in round_of_all() if problem.startswith(broken.slug)]
    assert problem
    assert differing(tenant) == []
    assert len(differing(broken)) == 1


def test_rounds_visit_tenants_in_turn(operator: Api, new_tenant: New) -> None:
    tenants = [new_tenant() for _ in range(2)]
    for tenant in tenants:
        interrupted_change(operator, tenant)
    visits = Round()
    for _ in range(TenantDatabase.objects.count() + 1):
        visits.apply_next(1)
    assert [differing(tenant) for tenant in tenants] == [[], []]


# --- a restored global database --------------------------------------------------------------------------------------


def test_newer_record_is_not_overwritten_silently(new_tenant: New) -> None:
    tenant = new_tenant()
    with in_tenant(tenant.id):
        assert TenantRecord.objects.filter(applied_epoch=F("epoch")).exists()
        TenantRecord.objects.update(name="Lost", revision=F("revision") + 5)
    code, said = check(tenant, repair=True, yes=True)
    assert code == 1
    assert "newer tenant record" in said
    assert "tenant (revision 6, globally 1: name)" in said
    # As after a suspension while the database was away: it holds until the copies are equal.
    TenantDatabase.objects.filter(pk=tenant.id).update(copies_lag=True)
    round_of_all()
    assert (record_of(tenant).name, record_of(tenant).revision) == ("Lost", 6)
    assert stored(tenant).database.copies_lag
    code, _ = check(tenant, repair=True, overwrite_newer=True, yes=True)
    assert code == 0
    round_of_all()
    assert not stored(tenant).database.copies_lag
    record = record_of(tenant)
    assert (record.name, record.revision, stored(tenant).revision) == (tenant.name, 7, 7)


def test_record_of_an_earlier_epoch_is_not_overwritten_silently(new_tenant: New) -> None:
    tenant = new_tenant()
    with in_tenant(tenant.id):
        # One change was lost, and the installation adopted after that.
        TenantRecord.objects.update(name="Lost", revision=F("revision") + 1, applied_epoch=F("applied_epoch") - 1)
    round_of_all()
    code, said = check(tenant, repair=True, yes=True)
    assert (code, "newer tenant record" in said, record_of(tenant).name) == (1, True, "Lost")


# --- requests --------------------------------------------------------------------------------------------------------


def test_suspension_during_an_outage_counts_before_the_next_request(operator: Api, new_tenant: New) -> None:
    tenant = new_tenant()
    user = tenant.as_user(tenant.register())
    assert user.get("/authmgr/profile").status_code == 200
    with gone(tenant):
        assert user.get("/authmgr/profile").status_code == 503
        assert patch(operator, tenant, status="suspended").status_code == 200
    assert record_of(tenant).status == "active"
    assert user.get("/authmgr/profile").json()["code"] == "tenant_suspended"
    assert (record_of(tenant).status, stored(tenant).database.copies_lag) == ("suspended", False)

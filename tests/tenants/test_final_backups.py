"""Deleting a tenant keeps an encrypted final backup for some days, from which it can be restored."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from django.utils.timezone import now

from console.metrics.models import TenantDay, TenantFigures
from identity_platform.audit.models import ChainHead
from tenants.copies import databases
from tenants.database_servers import servers
from tenants.journals import audit_trails
from tenants.lifecycle import final_backups, retention
from tenants.lifecycle.capacity import main_server
from tenants.models import (
    DataKey,
    DomainClaim,
    FinalBackup,
    Tenant,
    TenantDatabase,
    WarmDatabase,
    WebAuthnClaim,
    WebhookTenant,
)
from tests.copies import change_client
from tests.openid.sign_in_domains import set_sign_in, sign_in_domain, verified_domain
from tests.tenants.conftest import AnotherProcess, check_tenants, run_command, throw_away
from tests.tenants.test_killed_jobs import wrong_with
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.userflow.user_index.reading import indexed
from tests.world import Api, TestTenant, User, build_tenant, sign_in_admin
from userflow.accounts.models import AdminUser, Client
from userflow.user_index.models import IndexedEndUser


@pytest.fixture
def folder(settings: Any, tmp_path: Path) -> Path:
    """An empty backup folder, and a grace period of seven days."""
    settings.DELETED_TENANT_BACKUP_DAYS = 7
    settings.BACKUP_FOLDER = tmp_path / "backups"
    return tmp_path / "backups"


@pytest.fixture
def populated(django_db_setup: None) -> Any:
    """A tenant with a user, an admin, and a service that has a credential."""
    tenant = build_tenant("populated")
    person = tenant.register()
    made = tenant.api.post(
        "/exsvc/api/v1/services", {"name": "Payments", "type": "payment", "base_url": "https://a.example"}
    )
    assert made.status_code == 201, made.content
    path = f"/exsvc/api/v1/services/{made.json()['id']}/credentials"
    assert tenant.api.post(path, {"name": "key", "secret": "s3cret-of-payments"}).status_code == 201
    yield tenant, person, path
    throw_away(tenant.row)


def file_of(tenant: TestTenant) -> Path:
    return Path(FinalBackup.objects.get(pk=tenant.id).file)


def delete(tenant: TestTenant, **options: Any) -> str:
    return run_command("delete_tenant", tenant.slug, yes=True, **options)


def states(tenant: TestTenant) -> tuple[str, bool]:
    """Return the tenant's state, and whether its data key exists."""
    status = TenantDatabase.objects.get(pk=tenant.id).status
    return status, DataKey.objects.filter(owner=str(tenant.id)).exists()


def test_delete_keeps_encrypted_backup_and_reports_it(folder: Path, populated: tuple[TestTenant, User, str]) -> None:
    tenant, person, _ = populated
    said = delete(tenant)
    file = file_of(tenant)
    assert f"restore_deleted_tenant {file}" in said
    assert (file.parent, file.stat().st_mode & 0o777) == (folder, 0o600)
    assert [path.name for path in folder.iterdir()] == [file.name]
    content = file.read_bytes()
    assert not any(word in content for word in (b"PGDMP", b"PK\x03\x04", person.email.encode(), b"Payments"))
    assert states(tenant) == ("deleted", True)
    assert not AdminUser.objects.filter(tenant_id=tenant.id).exists()


def test_restore_deleted_restores_everything(folder: Path, populated: tuple[TestTenant, User, str]) -> None:
    tenant, person, path = populated
    slug, before = tenant.slug, tenant.sign_in(person)
    assert Api(token=before["access_token"]).get("/authmgr/validate").status_code == 200
    delete(tenant)
    assert indexed(tenant, person.email) == []
    file = file_of(tenant)
    assert f"{slug} is suspended" in run_command("restore_deleted_tenant", str(file))
    run_command("resume_tenant", slug)
    row = Tenant.objects.get(pk=tenant.id)
    assert (row.slug, row.name) == (slug, tenant.name)
    assert indexed(tenant, person.email) == [person.id]
    assert tenant.sign_in(person)["access_token"]
    # Sessions that were open at the deletion stay closed.
    assert Api(token=before["access_token"]).get("/authmgr/validate").status_code == 401
    assert tenant.api.get("/authmgr/validate").status_code == 401
    admin = Api(token=sign_in_admin(tenant.admin.username)["access_token"])
    assert admin.get("/uflow/admin/users/me").json()["roles"] == ["tenant-admin"]
    assert [held["secret"] for held in admin.get(path).json()["credentials"]] == ["s3cret-of-payments"]
    assert admin.get("/exsvc/api/v1/services").json()["pagination"]["total"] == 1
    assert Client.objects.filter(tenant_id=tenant.id, is_default=True).count() == 1
    assert (states(tenant), file.exists(), wrong_with(slug)) == (("active", True), False, [])
    assert audit_trails.verify(audit_trails.Owner(slug, tenant.id)).faults == []


def test_restore_deleted_replaces_rows_written_since(
    folder: Path, populated: tuple[TestTenant, User, str], other_tenant: TestTenant
) -> None:
    tenant, person, _ = populated
    slug, today = tenant.slug, now().date()
    TenantDay.objects.create(tenant_id=tenant.id, day=today, sign_ins=7)
    # These stay: they are another tenant's.
    TenantDay.objects.update_or_create(tenant_id=other_tenant.id, day=today, defaults={"sign_ins": 5})
    audit_trails.seal(audit_trails.Owner(slug, tenant.id), wait=120)
    head = ChainHead.objects.get(pk=str(tenant.id)).number
    delete(tenant)
    # By processes that were busy with the tenant while it was deleted.
    TenantDay.objects.create(tenant_id=tenant.id, day=today, sign_ins=1)
    TenantFigures.objects.create(tenant_id=tenant.id)
    ChainHead.objects.create(owner=str(tenant.id), number=1, mac=b"m" * 32)
    IndexedEndUser.objects.create(tenant_id=tenant.id, user_id=person.id, digest=b"z" * 16)
    WebhookTenant.objects.create(tenant_id=tenant.id)
    run_command("restore_deleted_tenant", str(file_of(tenant)))
    assert TenantDay.objects.get(tenant_id=tenant.id).sign_ins == 7
    assert TenantDay.objects.get(tenant_id=other_tenant.id, day=today).sign_ins == 5
    assert ChainHead.objects.get(pk=str(tenant.id)).number == head
    assert indexed(tenant, person.email) == [person.id]
    assert audit_trails.verify(audit_trails.Owner(slug, tenant.id)).faults == []


@pytest.mark.nightly
def test_delete_keeps_backup_of_very_many_services(folder: Path, new_tenant: Callable[[], TestTenant]) -> None:
    # More than the parameters of one statement.
    tenant, number = new_tenant(), 66_000
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO registry_service (id, tenant_id, name, description, type, status, base_url, api_version, metadata,"
            " created_at, updated_at) SELECT gen_random_uuid(), %s, 'service ' || n, '', 'api', 'active',"
            " 'https://a.example', '', '{}', now(), now() FROM generate_series(1, %s) n",
            [tenant.id, number],
        )
    delete(tenant)
    assert states(tenant) == ("deleted", True)
    *_, rows = final_backups.unpack(file_of(tenant), tenant.id, folder)
    assert rows.count('"registry.service"') == number


def test_an_expired_backup_is_deleted_with_its_key(folder: Path, populated: tuple[TestTenant, User, str]) -> None:
    tenant, *_ = populated
    delete(tenant)
    file = file_of(tenant)
    copy = file.rename(folder.parent / file.name)
    file.write_bytes(copy.read_bytes())
    retention.purge(audit_trails.THE_PLATFORM)
    assert (file.exists(), states(tenant)) == (True, ("deleted", True))
    FinalBackup.objects.filter(pk=tenant.id).update(delete_after=now() - timedelta(seconds=1))
    assert retention.purge(audit_trails.THE_PLATFORM).rows["final backups"] == 1
    assert (file.exists(), states(tenant)) == (False, ("deleted", False))
    with pytest.raises(CommandError, match="no longer be restored"):
        run_command("restore_deleted_tenant", str(copy))


def test_purge_removes_files_without_key(folder: Path, populated: tuple[TestTenant, User, str]) -> None:
    tenant, *_ = populated
    delete(tenant)
    file = file_of(tenant)
    FinalBackup.objects.filter(pk=tenant.id).delete()
    other = folder / "acme-20300101T000000Z.backup"
    other.touch()
    retention.purge(audit_trails.THE_PLATFORM)
    assert list(folder.iterdir()) == [other]
    assert not file.exists()


@pytest.mark.parametrize("how", ["flag", "setting"])
def test_delete_without_backup_leaves_nothing(
    how: str, folder: Path, settings: Any, new_tenant: Callable[[], TestTenant]
) -> None:
    tenant = new_tenant()
    if how == "setting":
        settings.DELETED_TENANT_BACKUP_DAYS = 0
    said = delete(tenant, no_final_backup=how == "flag")
    assert "There is no final backup of it." in said
    assert (states(tenant), folder.exists()) == (("deleted", False), False)


def test_failed_backup_deletes_nothing(folder: Path, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    folder.write_text("in the way")
    with pytest.raises(CommandError, match="--no-final-backup") as rejected:
        delete(tenant)
    assert rejected.value.returncode == 2
    assert states(tenant) == ("active", True)
    assert tenant.sign_in(tenant.register())["access_token"]


def test_delete_over_rest_names_option_without_backup(
    folder: Path, operator: Api, new_tenant: Callable[[], TestTenant]
) -> None:
    tenant = new_tenant()
    folder.write_text("in the way")
    path, body = f"/uflow/admin/tenants/{tenant.id}", {"confirm": tenant.slug}
    rejected = operator.delete(path, body)
    assert (rejected.status_code, "final_backup: false" in rejected.json()["message"]) == (503, True)
    assert str(folder) not in rejected.content.decode()
    assert states(tenant) == ("active", True)
    answered = operator.delete(path, {**body, "final_backup": False})
    assert (answered.status_code, answered.json()["final_backup_until"]) == (200, None)


@pytest.fixture
def deleting_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AnotherProcess]:
    """Another process with the same grace period and folder."""
    monkeypatch.setenv("DELETED_TENANT_BACKUP_DAYS", "7")
    monkeypatch.setenv("BACKUP_FOLDER", str(folder))
    process = AnotherProcess("identity_platform.settings")
    yield process
    process.end()


@pytest.mark.parametrize("step", ["written out", "backed up", "deleting", "dropped"])
def test_a_killed_deletion_is_finished_with_its_backup(
    step: str, populated: tuple[TestTenant, User, str], deleting_process: AnotherProcess
) -> None:
    tenant, person, _ = populated
    slug = tenant.slug
    assert deleting_process.run("delete_tenant", slug, "--yes", kill_after=step).code == 9
    delete(tenant)
    assert states(tenant) == ("deleted", True)
    assert wrong_with(slug, tenant.row.database.name) == []
    run_command("restore_deleted_tenant", str(file_of(tenant)))
    run_command("resume_tenant", slug)
    assert tenant.sign_in(person)["access_token"]


@pytest.mark.parametrize("step", ["reserved", "created", "read in", "switched"])
def test_a_killed_restore_of_a_deleted_tenant_is_repeated(
    step: str, populated: tuple[TestTenant, User, str], deleting_process: AnotherProcess
) -> None:
    tenant, person, _ = populated
    slug = tenant.slug
    delete(tenant)
    file = str(file_of(tenant))
    assert deleting_process.run("restore_deleted_tenant", file, kill_after=step).code == 9
    if step != "switched":
        run_command("restore_deleted_tenant", file)
    assert [found for found in wrong_with(slug) if "orphan" in found] == []
    assert not WarmDatabase.objects.filter(schema_version=f"for {tenant.id}").exists()
    run_command("resume_tenant", slug)
    assert tenant.sign_in(person)["access_token"]


def test_restore_deleted_rejects_other_files(
    folder: Path, new_tenant: Callable[[], TestTenant], tmp_path: Path
) -> None:
    alive, gone = new_tenant(), new_tenant()
    delete(gone)
    file = file_of(gone)
    content = file.read_bytes()
    for name in ("notes.backup", f"deleted-{alive.id}.backup"):
        other = tmp_path / name
        other.write_bytes(content)
        with pytest.raises(CommandError) as rejected:
            run_command("restore_deleted_tenant", str(other))
        assert rejected.value.returncode == 2
    for broken in (b"", content[:-1], content[:200] + b"\x00" + content[201:]):
        file.write_bytes(broken)
        with pytest.raises(CommandError, match="cannot be decrypted"):
            run_command("restore_deleted_tenant", str(file))
    assert states(gone) == ("deleted", True)


def test_final_backup_of_an_earlier_deletion_is_rejected(folder: Path, populated: tuple[TestTenant, User, str]) -> None:
    tenant, *_ = populated
    delete(tenant)
    file = file_of(tenant)
    older = file.read_bytes()
    run_command("restore_deleted_tenant", str(file))
    run_command("resume_tenant", tenant.slug)
    # Rows of the global database, of which no journal knows what was revoked.
    AdminUser.objects.filter(tenant_id=tenant.id).delete()
    change_client(tenant.client_id, redirect_uris=["https://new.example/back"])
    delete(tenant)
    newer = file.read_bytes()
    file.write_bytes(older)
    with pytest.raises(CommandError, match="not the final backup of the last deletion") as rejected:
        run_command("restore_deleted_tenant", str(file))
    assert (rejected.value.returncode, states(tenant)) == (2, ("deleted", True))
    begun_at = FinalBackup.objects.get(pk=tenant.id).begun_at
    assert begun_at is not None
    assert f"{begun_at:%Y-%m-%d %H:%M:%S.%f} UTC" in str(rejected.value)
    file.write_bytes(newer)
    run_command("restore_deleted_tenant", str(file))
    assert not AdminUser.objects.filter(tenant_id=tenant.id).exists()
    assert Client.objects.get(pk=tenant.client_id).redirect_uris == ["https://new.example/back"]


def test_final_backup_of_the_earlier_release_is_restored(folder: Path, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    delete(tenant)
    # That release has not stored which backup it is.
    FinalBackup.objects.filter(pk=tenant.id).update(begun_at=None)
    run_command("restore_deleted_tenant", str(file_of(tenant)))
    assert states(tenant) == ("suspended", True)


def test_slug_of_deleted_tenant_stays_reserved(folder: Path, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    slug = tenant.slug
    delete(tenant)
    with pytest.raises(CommandError, match="slug"):
        run_command("create_tenant", "Successor", "--slug", slug)
    run_command("restore_deleted_tenant", str(file_of(tenant)), slug=f"{slug}-2")
    assert Tenant.objects.get(pk=tenant.id).slug == f"{slug}-2"


def test_restore_deleted_leaves_a_domain_to_its_new_holder(
    folder: Path, new_tenant: Callable[[], TestTenant], name_server: DnsServer
) -> None:
    deleted = new_tenant()
    taken, free = verified_domain(deleted, name_server), sign_in_domain(deleted, name_server)
    assert set_sign_in(deleted, taken, True).status_code == 200
    delete(deleted)
    holder = new_tenant()
    sign_in_domain(holder, name_server, taken["domain"])
    run_command("restore_deleted_tenant", str(file_of(deleted)))
    assert DomainClaim.objects.get(pk=taken["domain"]).tenant_id == holder.id
    assert WebAuthnClaim.objects.get(pk=taken["domain"]).tenant_id == holder.id
    assert DomainClaim.objects.get(pk=free["domain"]).tenant_id == deleted.id
    (line,) = check_tenants(deleted.slug)
    assert line.startswith("outdated domains\t")
    assert f"{taken['domain']} belongs to another tenant" in line
    assert check_tenants(deleted.slug, repair=True, yes=True) == []


def test_delete_without_database_writes_no_backup(folder: Path, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    with servers.maintenance(main_server()) as raw:
        databases.drop(raw, tenant.row.database.name)
    assert "There is no final backup of it." in delete(tenant)
    assert states(tenant) == ("deleted", False)


def test_delete_over_rest_names_the_end_of_the_backup(
    folder: Path, operator: Api, new_tenant: Callable[[], TestTenant]
) -> None:
    tenant = new_tenant()
    response = operator.delete(f"/uflow/admin/tenants/{tenant.id}", {"confirm": tenant.slug}).json()
    days = datetime.fromisoformat(response["final_backup_until"]) - now()
    assert timedelta(days=6, hours=23) < days <= timedelta(days=7)
    assert str(folder) not in str(response)

"""Backups of all tenants and the global database: encrypted, signed, tested, and restored."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError
from psycopg import sql

from identity_platform.audit.models import PlatformEvent
from identity_platform.crypto import reload_key_ring
from tenants.backups import backup_lists, backup_sets
from tenants.backups.backup_folders import Folder, FolderOfSet
from tenants.backups.backup_storage import LIST
from tenants.copies import databases, dumps
from tenants.database_servers import servers
from tenants.database_servers.queries import connection_to
from tenants.lifecycle.capacity import main_server
from tenants.models import DataKey, TenantDatabase, WarmDatabase
from tests.tenants.conftest import ROOT, AnotherProcess, check_tenants, databases_on, run_command
from tests.tenants.test_relocation import at_the_step, people
from tests.world import TestTenant

Two = tuple[TestTenant, TestTenant]


@pytest.fixture
def two(new_tenant: Callable[[], TestTenant]) -> Two:
    """Two tenants with a user each."""
    both = new_tenant(), new_tenant()
    for tenant in both:
        tenant.register()
    return both


def only(*tenants: TestTenant) -> list[str]:
    return [word for tenant in tenants for word in ("--only", tenant.slug)]


def back_up(parent: Path, *tenants: TestTenant, **options: Any) -> backup_lists.BackupSet:
    """Back up these tenants and the global database."""
    before = set(parent.glob("platform-*"))
    run_command("backup_tenants", str(parent), only=[tenant.slug for tenant in tenants], **options)
    (folder,) = set(parent.glob("platform-*")) - before
    return backup_lists.read(FolderOfSet(folder))


def folder_of(found: backup_lists.BackupSet) -> Path:
    assert isinstance(found.location, FolderOfSet)
    return found.location.path


def renamed(found: backup_lists.BackupSet) -> backup_lists.BackupSet:
    """Give a set the name of an earlier day, as its own command would have: the key is bound to the name."""
    folder = folder_of(found).with_name("platform-20200101T000000Z")
    older = replace(found, location=FolderOfSet(folder))
    folder_of(found).rename(folder)
    (folder / LIST).write_bytes(backup_lists.signed(older))
    return older


def drop_database(tenant: TestTenant) -> None:
    mapping = TenantDatabase.objects.select_related("server").get(pk=tenant.id)
    with servers.maintenance(mapping.server) as raw:
        databases.drop(raw, mapping.name)


def code_of(*command: str, **options: Any) -> tuple[int, str]:
    """Return the exit code of a command that is not 0, and what it said about it."""
    from io import StringIO

    said = StringIO()
    with pytest.raises((SystemExit, CommandError)) as ended:
        run_command(*command, stderr=said, **options)
    if isinstance(ended.value, CommandError):
        return ended.value.returncode, str(ended.value)
    return int(ended.value.code or 0), said.getvalue()


def test_set_is_encrypted_and_tested(two: Two, tmp_path: Path) -> None:
    slugs = [tenant.slug for tenant in two]
    parent, copies = tmp_path / "backups", databases_on(main_server())
    said = run_command("backup_tenants", str(parent), only=slugs, test=2)
    (folder,) = parent.iterdir()
    files = sorted(path.name for path in folder.iterdir())
    assert files == sorted(["backup.json", "global.backup", *(f"tenant-{tenant.id}.backup" for tenant in two)])
    assert [path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())] == [0o700, *[0o600] * 4]
    for path in folder.glob("*.backup"):
        assert not any(word in path.read_bytes() for word in (b"PGDMP", b"PK\x03\x04", b"@example.com"))
    assert "2 tenants and the global database" in said
    assert all(f"{slug} was restored into a copy" in said for slug in slugs)
    assert databases_on(main_server()) == copies
    assert "No problems found." in run_command("check_backup", str(folder), max_age=1)
    event = PlatformEvent.objects.filter(action="backup.written").latest("pk")
    assert event.details == {"tenants": 2, "failed": 0, "whole": False}


def test_restored_tenants_are_as_they_were(two: Two, tmp_path: Path) -> None:
    acme, zephyr = two
    kept = {tenant.id: people(tenant) for tenant in two}
    found = back_up(tmp_path, acme, zephyr)
    late = zephyr.register().id
    acme.register()
    said = run_command("restore_tenants", str(folder_of(found)), *only(acme), yes=True)
    assert said.endswith("1 of 1 tenant restored.\n")
    assert people(acme) == kept[acme.id]
    assert people(zephyr) == kept[zephyr.id] | {late}
    run_command("restore_tenants", str(folder_of(found)), all=True, yes=True)
    assert people(zephyr) == kept[zephyr.id]


def test_lost_databases_are_restored(two: Two, tmp_path: Path) -> None:
    acme, zephyr = two
    kept, found = people(acme), back_up(tmp_path, acme, zephyr)
    nothing = run_command("restore_tenants", str(folder_of(found)), lost=True, yes=True)
    assert "Nothing was changed" in nothing
    late = zephyr.register().id
    drop_database(acme)
    check_tenants(acme.slug, repair=True, yes=True)
    said = run_command("restore_tenants", str(folder_of(found)), lost=True, yes=True)
    assert said.endswith("1 of 1 tenant restored.\n")
    assert people(acme) == kept
    assert late in people(zephyr)
    assert acme.sign_in(acme.register())["access_token"]


def test_restore_asks_first_and_names_unknown_tenants(two: Two, tmp_path: Path) -> None:
    acme, zephyr = two
    found = back_up(tmp_path, acme)
    assert code_of("restore_tenants", str(folder_of(found)), all=True)[0] == 2
    code, said = code_of("restore_tenants", str(folder_of(found)), *only(acme, zephyr), yes=True)
    assert (code, said) == (2, f"{zephyr.slug} is not in this backup.")
    code, said = code_of("backup_tenants", str(tmp_path), only=[acme.slug, "no-such-tenant"])
    assert code == 2
    assert "no-such-tenant" in said
    assert len(list(tmp_path.iterdir())) == 1


def append(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"x")


def forge(file: Path) -> None:
    listed = json.loads(file.read_text())
    listed["files"] = [entry for entry in listed["files"] if not entry["tenant_id"]]
    file.write_text(json.dumps(listed))


@pytest.mark.parametrize(
    ("name", "change", "code", "said"),
    [
        ("tenant-*.backup", append, 1, "was altered"),
        ("tenant-*.backup", Path.unlink, 1, "cannot be read: No such file"),
        ("global.backup", append, 1, "global.backup (global database) was altered"),
        ("backup.json", append, 2, "backup.json was altered"),
        ("backup.json", forge, 2, "backup.json was altered"),
        ("backup.json", Path.unlink, 2, "contains no backup set"),
    ],
    ids=["a file", "a file less", "the global database", "the list", "a shorter list", "no list"],
)
def test_changed_set_is_noticed(
    tenant: TestTenant, tmp_path: Path, name: str, change: Callable[[Path], None], code: int, said: str
) -> None:
    found = back_up(tmp_path, tenant, test=0)
    (file,) = folder_of(found).glob(name)
    change(file)
    ended, message = code_of("check_backup", str(tmp_path))
    assert ended == code
    assert said in message


def test_files_of_another_day_are_noticed(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    old = renamed(back_up(tmp_path, tenant, test=0))
    tenant.register()
    found, before = back_up(tmp_path, tenant, test=0), people(tenant)
    file = next(folder_of(found).glob("tenant-*"))
    shutil.copy(folder_of(old) / file.name, file)
    # It is a valid backup of this tenant.
    assert code_of("check_backup", str(tmp_path))[0] == 1
    assert code_of("restore_tenants", str(folder_of(found)), all=True, yes=True)[0] == 1
    assert people(tenant) == before
    # So is the whole folder.
    shutil.rmtree(folder_of(found))
    folder_of(old).rename(folder_of(found))
    code, said = code_of("check_backup", str(tmp_path))
    assert code == 2
    assert "the folder was renamed" in said


def test_old_backup_is_a_problem(tenant: TestTenant, tmp_path: Path) -> None:
    found = back_up(tmp_path, tenant, test=0)
    older = replace(found, started="2020-01-01T00:00:00+00:00")
    (folder_of(found) / LIST).write_bytes(backup_lists.signed(older))
    assert code_of("check_backup", str(folder_of(found)), max_age=26) == (1, "It is older than 26 hours.\n")


def test_future_set_does_not_remove_the_new_one(tenant: TestTenant, tmp_path: Path) -> None:
    first = back_up(tmp_path, tenant, test=0)
    folder = folder_of(first).with_name("platform-20990101T000000Z")
    late = replace(first, location=FolderOfSet(folder), started="2099-01-01T00:00:00+00:00")
    folder_of(first).rename(folder)
    (folder / LIST).write_bytes(backup_lists.signed(late))
    code, said = code_of("check_backup", str(folder), max_age=26)
    assert (code, said) == (
        1,
        "It is dated in the future: a clock is or was wrong. Write a new backup, then remove this one.\n",
    )
    run_command("backup_tenants", str(tmp_path), only=[tenant.slug], test=0, keep=1)
    assert len(list(tmp_path.glob("platform-202*"))) == 1
    assert folder.exists()


def test_backup_of_one_does_not_hide_others(two: Two, tmp_path: Path) -> None:
    acme, zephyr = two
    found = back_up(tmp_path, acme, test=0)
    code, said = code_of("check_backup", str(tmp_path))
    assert (code, said) == (
        1,
        "There is no backup of all tenants: this one has only those that were named with --only.\n",
    )
    assert "No problems found." in run_command("check_backup", str(folder_of(found)))
    # An older one of all tenants is what counts.
    whole = renamed(replace(found, whole=True))
    back_up(tmp_path, zephyr, test=0)
    assert f"{whole.location} of" in run_command("check_backup", str(tmp_path))


def test_tenant_that_fails_is_left_out_and_keeps_its_last_backup(two: Two, tmp_path: Path) -> None:
    acme, zephyr = two
    first = renamed(back_up(tmp_path, acme, zephyr))
    drop_database(acme)
    parent = str(tmp_path)
    code, said = code_of("backup_tenants", parent, only=[acme.slug, zephyr.slug], keep=1)
    assert code == 1
    assert f"{acme.slug} is not in it: The database cannot be read" in said
    found = backup_sets.newest(Folder(tmp_path))
    assert [file.slug for file in found.tenants] == [zephyr.slug]
    assert code_of("check_backup", parent)[0] == 1
    # The tenant's last backup is in the older set.
    assert folder_of(first).exists()
    check_tenants(acme.slug, repair=True, yes=True)
    run_command("restore_tenants", str(folder_of(first)), lost=True, yes=True)
    shutil.rmtree(folder_of(found))
    said = run_command("backup_tenants", parent, only=[acme.slug, zephyr.slug], keep=1)
    assert f"Removed {folder_of(first).name}." in said
    assert not folder_of(first).exists()
    assert len(list(tmp_path.iterdir())) == 1


def test_test_finds_backup_that_lacks_rows(two: Two, tmp_path: Path) -> None:
    tenant = two[0]

    def lose_it() -> None:
        copy = WarmDatabase.objects.get(schema_version=f"for {tenant.id}")
        with connection_to(main_server(), copy.name) as raw:
            raw.execute("DELETE FROM userflow_rolebinding")

    with at_the_step("read in", lose_it):
        code, said = code_of("backup_tenants", str(tmp_path), only=[tenant.slug])
    assert code == 1
    assert f"{tenant.slug} could not be restored: The copy has fewer rows than the original" in said
    assert not WarmDatabase.objects.filter(schema_version=f"for {tenant.id}").exists()
    assert tenant.sign_in(tenant.register())["access_token"]


def test_second_run_at_once_is_rejected(tenant: TestTenant, tmp_path: Path) -> None:
    second: list[tuple[int, str]] = []
    with at_the_step(
        "stored",
        lambda: second.append(code_of("backup_tenants", str(tmp_path / "second"), *only(tenant))),
    ):
        back_up(tmp_path / "first", tenant, test=0)
    ((code, said),) = second
    assert (code, said) == (2, "Another backup of all tenants is running. Try again when it has finished.")
    assert not (tmp_path / "second").exists()


def test_tenant_deleted_during_backup_is_no_problem(two: Two, tmp_path: Path) -> None:
    acme, zephyr = two

    def delete(total: int) -> None:
        run_command("delete_tenant", acme.slug, yes=True, no_final_backup=True)

    found = backup_sets.write(Folder(tmp_path), only=[acme.slug, zephyr.slug], start=delete)
    assert found.failed == {}
    assert [file.slug for file in found.tenants] == [zephyr.slug]


def test_deleted_tenants_are_not_tested(two: Two, tmp_path: Path) -> None:
    acme, zephyr = two
    found = back_up(tmp_path, acme, zephyr)
    run_command("delete_tenant", acme.slug, yes=True, no_final_backup=True)
    said = run_command("check_backup", str(folder_of(found)), test=9)
    assert said.count("was restored into a copy") == 1
    assert f"{zephyr.slug} was restored into a copy" in said


def test_killed_backup_leaves_no_set(tenant: TestTenant, another_process: AnotherProcess, tmp_path: Path) -> None:
    command = ["backup_tenants", str(tmp_path), "--only", tenant.slug]
    assert another_process.run(*command, kill_after="written out").code == 9
    assert code_of("check_backup", str(tmp_path)) == (2, f"{tmp_path} contains no backup set.")
    found = back_up(tmp_path, tenant)
    assert "No problems found." in run_command("check_backup", str(folder_of(found)))


def test_only_quiet_drafts_of_others_are_removed(tenant: TestTenant, tmp_path: Path) -> None:
    # As another machine has it that shares this disk: its lock does not reach here.
    file = tmp_path / ".identity-draft-other" / "new" / "partial"
    file.parent.mkdir(parents=True)
    file.touch()
    for folder in (file.parent, file.parent.parent):
        os.utime(folder, (0, 0))
    renamed(back_up(tmp_path, tenant, test=0))
    assert file.exists()
    for path in (file, file.parent, file.parent.parent):
        os.utime(path, (0, 0))
    back_up(tmp_path, tenant, test=0)
    assert not file.parent.parent.exists()


def test_missing_ring_key_is_named(tenant: TestTenant, tmp_path: Path, settings: Any) -> None:
    found, ring = back_up(tmp_path, tenant, test=0), settings.ENCRYPTION_KEYS
    settings.ENCRYPTION_KEYS = "other:QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="
    try:
        reload_key_ring()
        code, said = code_of("extract_global_backup", str(folder_of(found)), str(tmp_path / "global.dump"))
    finally:
        settings.ENCRYPTION_KEYS = ring
        reload_key_ring()
    assert code == 2
    assert ring.partition(":")[0] in said
    assert not (tmp_path / "global.dump").exists()


def test_global_database_is_restored_with_the_key_ring_alone(tenant: TestTenant, tmp_path: Path, settings: Any) -> None:
    found, file = back_up(tmp_path, tenant, test=0), tmp_path / "global.dump"
    # No server answers there.
    nowhere = {"DATABASE_URL": "postgresql://identity@127.0.0.1:1/identity", "REDIS_URL": "redis://127.0.0.1:1/0"}
    needed = {name: getattr(settings, name) for name in ("SECRET_KEY", "ENCRYPTION_KEYS")}
    needed |= {"EMAIL_URL": "file:/none", "BASE_URL": "https://id.example.com", "ALLOWED_HOSTS": "id.example.com"}
    environment = os.environ | nowhere | needed | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", str(ROOT / "manage.py"), "extract_global_backup", str(folder_of(found)), str(file)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    name = f"{settings.TENANT_DATABASE_PREFIX}restored_{uuid4().hex[:8]}"
    with servers.maintenance(main_server()) as raw:
        raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        try:
            dumps.read_in(main_server(), name, file)
            with connection_to(main_server(), name) as restored:
                stored = restored.execute("SELECT wrapped FROM tenants_datakey WHERE owner = %s", [str(tenant.id)])
                assert stored.fetchone() == (bytes(DataKey.objects.get(pk=str(tenant.id)).wrapped),)
        finally:
            databases.drop(raw, name)


def test_folder_that_is_a_file_is_rejected(tenant: TestTenant, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, said = code_of("backup_tenants", str(tmp_path / "file"), only=[tenant.slug])
    assert (code, said) == (2, f"{tmp_path / 'file'}: File exists")

"""Export end users to files and import them into another tenant."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from identity_platform.audit.models import PlatformEvent
from tenants.entering.context import in_tenant
from tests.copies import create_client
from tests.userflow.transfer.files import everything, jsonl, run, slug
from tests.world import PASSWORD, Api, TestTenant, User
from userflow.accounts.models import EndUser, Group

PEOPLE = [
    {"email": "ann@example.com", "name": "Ann", "groups": ["Staff", "On call"], "roles": ["editor", "user"]},
    {"email": "=cmd@example.com", "name": "=HYPERLINK(1)", "metadata": {"note": "a,\"b\"\n'c'"}, "roles": []},
    {"email": "-off@example.com", "name": "'quoted", "active": False, "provider": "ldap", "email_verified": True},
    {"email": "spanish@example.com", "language": "es", "external_id": "=1+1", "app_metadata": {"plan": "=pro"}},
    {"email": "ünicode@example.com".replace("ü", "u"), "name": "Füße 漢字 🙂", "last_login": "2024-02-29T00:00:00Z"},
]


def peopled(tenant: TestTenant, folder: Path) -> User:
    """A tenant with users of every kind, one of them with a local password."""
    tenant.api.post("/authmgr/roles", {"name": "editor", "permissions": ["pages:edit"], "description": "Edits"})
    tenant.api.post("/authmgr/groups", {"name": "Staff", "roles": ["editor"]})
    ended = run("import_users", slug(tenant), jsonl(folder / "in.jsonl", *PEOPLE), "--create-missing")
    assert ended.code == 0, ended.said
    return tenant.register("zoe@example.com", name="Zoe")


def test_export_and_import_keep_users_unchanged(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    old, new = new_tenant(), new_tenant()
    zoe = peopled(old, tmp_path)
    file = tmp_path / "out.jsonl"
    assert run("export_users", slug(old), file).said == "6 end users.\n"
    assert file.stat().st_mode & 0o777 == 0o600
    ended = run("import_users", slug(new), file, "--create-missing")
    assert ended.code == 0, ended.said
    assert everything(new) == everything(old)
    assert new.sign_in(User(zoe.id, zoe.email))["access_token"]
    with in_tenant(new.id):
        staff = Group.objects.get(name="Staff")
        assert [(role.name, role.permissions) for role in staff.roles.all()] == [("editor", ["pages:edit"])]
        clients = set(EndUser.objects.values_list("client_id", flat=True))
    assert clients == {new.client_id}


def test_csv_export_escapes_formulas_reversibly(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    old, new = new_tenant(), new_tenant()
    peopled(old, tmp_path)
    file = tmp_path / "out.csv"
    assert run("export_users", slug(old), file).code == 0
    with file.open(newline="") as stream:
        cells = [cell for row in csv.reader(stream) for cell in row]
    assert not [cell for cell in cells if cell[:1] in {"=", "+", "-", "@", "\t", "\r"}]
    assert "'=HYPERLINK(1)" in cells
    ended = run("import_users", slug(new), file, "--create-missing")
    assert ended.code == 0, ended.said
    assert everything(new) == everything(old)


def test_export_without_hashes(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    tenant.register()
    said = run("export_users", slug(tenant), "--without-hashes").said
    assert "argon2" not in said
    assert "argon2" in run("export_users", slug(tenant)).said
    assert "password_hash" not in run("export_users", slug(tenant), "--without-hashes", "--format", "csv").said
    trail = PlatformEvent.objects.filter(action="end_users.exported", tenant_id=tenant.id).order_by("id")
    assert [event.details["hashes"] for event in trail] == [False, True, False]


def test_export_holds_no_sessions_or_factors(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    person = tenant.register()
    tokens = tenant.sign_in(person)
    api = Api(token=tokens["access_token"])
    begun = api.post("/mfa/totp/enroll", {"tenant_id": str(tenant.id), "email": person.email})
    said = run("export_users", slug(tenant)).said
    [row] = [row for row in map(json.loads, said.splitlines()[:-1]) if "email" in row]
    assert row.keys() <= {
        *("id", "email", "name", "active", "provider", "password_hash", "language", "metadata", "groups", "roles"),
        *("email_verified", "created_at", "last_login", "external_id", "app_metadata"),
    }
    secret = begun.json().get("secret", tokens["refresh_token"])
    assert secret not in said


def test_export_holds_users_of_its_tenant_only(tenant: TestTenant, other_tenant: TestTenant) -> None:
    mine, theirs = tenant.register(), other_tenant.register()
    said = run("export_users", slug(tenant)).said
    assert mine.email in said
    assert theirs.email not in said


def test_export_includes_the_lowest_uuid(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    rows = [{"id": str(UUID(int=number)), "email": f"n{number}@example.com"} for number in range(3)]
    assert run("import_users", slug(tenant), jsonl(tmp_path / "in.jsonl", *rows)).code == 0
    written = map(json.loads, run("export_users", slug(tenant)).said.splitlines()[:-1])
    assert [row["id"] for row in written if "email" in row] == [row["id"] for row in rows]
    seen: list[str] = []
    asked: dict[str, Any] = {"tenant_id": str(tenant.id), "limit": 1}
    while asked.get("cursor", "") is not None:
        page = tenant.api.post("/uflow/admin/enduser/export", asked).json()
        seen += [person["id"] for person in page["users"]]
        asked["cursor"] = page["next_cursor"]
    assert seen == [row["id"] for row in rows]


def test_import_maps_null_client_to_default_client(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    other = create_client(tenant_id=tenant.id, name="Second")
    tenant.register()
    row = {"email": "second@example.com", "client_id": str(other.pk)}
    run("import_users", slug(tenant), jsonl(tmp_path / "in.jsonl", row))
    said = run("export_users", slug(tenant)).said
    assert str(other.pk) in said
    assert str(tenant.client_id) not in said


def test_failed_export_keeps_the_old_file(tenant: TestTenant, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("before")
    assert run("export_users", "no-such-tenant", file).code == 2
    assert run("export_users", slug(tenant), tmp_path / "none" / "out.jsonl").code == 2
    assert file.read_text() == "before"
    assert PASSWORD not in file.read_text()

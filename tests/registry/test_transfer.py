"""Import and export services by the registry's rules, with secrets only on request."""

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Sum

from identity_platform.audit.models import PlatformEvent
from registry.actions import create_service
from registry.models import Service, ServiceCount, ServiceCredential, ServiceImport
from tests.userflow.transfer.another_process import another_process
from tests.userflow.transfer.files import jsonl, reported, run, slug
from tests.world import TestTenant

SERVICES = "/exsvc/api/v1/services"


def service(**members: Any) -> dict[str, Any]:
    return {"name": f"s-{secrets.token_hex(4)}", "type": "mail", "base_url": "https://mail.example.com/v1", **members}


def peopled(tenant: TestTenant) -> dict[str, Any]:
    """Two services; one has an active credential, one whose secret is an object, and a revoked one."""
    made = tenant.api.post(SERVICES, service(name="Mail", description="Sends\nmail", metadata={"a": [1]})).json()
    tenant.api.post(SERVICES, service(name="=Pay", type="payment", status="inactive"))
    credentials = f"{SERVICES}/{made['id']}/credentials"
    for name, secret in (("one", "s3cret"), ("two", {"user": "u", "password": "p"}), ("old", "gone")):
        last = tenant.api.post(
            credentials, {"name": name, "secret": secret, "expires_at": "2999-01-01T00:00:00Z"}
        ).json()
    tenant.api.put(f"{credentials}/{last['id']}", {"status": "revoked"})
    return dict(made)


def everything(tenant: TestTenant) -> list[dict[str, Any]]:
    rows = tenant.api.get(SERVICES).json()["services"]
    unlike = {"id", "tenant_id", "updated_at"}
    return sorted(
        ({name: value for name, value in row.items() if name not in unlike} for row in rows),
        key=lambda row: row["name"],
    )


def handed_out(tenant: TestTenant, name: str) -> dict[str, Any]:
    pk = Service.objects.get(tenant_id=tenant.id, name=name).pk
    said = tenant.api.get(f"{SERVICES}/{pk}/credentials").json()
    assert "unreadable" not in said
    return {row["name"]: row["secret"] for row in said["credentials"]}


def counted(tenant: TestTenant) -> int:
    found = ServiceCount.objects.filter(tenant_id=tenant.id, type="").aggregate(Sum("services"))
    return int(found["services__sum"] or 0)


def test_export_and_import_move_services_and_secrets(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    old, new = new_tenant(), new_tenant()
    peopled(old)
    file = tmp_path / "out.jsonl"
    ended = run("export_services", slug(old), file, "--with-secrets", "--yes")
    assert (ended.code, file.stat().st_mode & 0o777) == (0, 0o600), ended.said
    done = run("import_services", slug(new), file)
    assert (done.code, "1 credentials have no secret" in done.said) == (0, True), done.said
    assert everything(new) == everything(old)
    assert handed_out(new, "Mail") == {"one": "s3cret", "two": {"user": "u", "password": "p"}}
    assert counted(new) == new.api.get(SERVICES).json()["pagination"]["total"] == 2
    trail = PlatformEvent.objects.filter(tenant_id=old.id, details__via="export")
    assert [event.action for event in trail] == ["service_credential.read"] * 2
    assert PlatformEvent.objects.get(tenant_id=old.id, action="services.exported").details == {"secrets": True}


def test_export_omits_secrets_by_default(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    peopled(tenant)
    said = run("export_services", slug(tenant)).said
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [row["name"] for row in rows if row.get("kind") == "credential"] == ["one", "two", "old"]
    assert "s3cret" not in said
    assert not [row for row in rows if "secret" in row]
    for command in (
        ["export_services", slug(tenant), "--with-secrets", "--yes"],
        ["export_services", slug(tenant), tmp_path / "out.csv", "--with-secrets", "--yes"],
        ["export_services", slug(tenant), tmp_path / "out.txt", "--with-secrets", "--yes"],
        ["export_services", slug(tenant), tmp_path / "out.jsonl", "--with-secrets"],
    ):
        assert run(*command).code == 2
    assert list(tmp_path.iterdir()) == []
    assert not PlatformEvent.objects.filter(tenant_id=tenant.id, details__via="export").exists()


def test_service_export_includes_the_lowest_uuid(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant, lowest = new_tenant(), UUID(int=0)
    Service.objects.filter(pk=lowest).delete()
    assert run("import_services", slug(tenant), jsonl(tmp_path / "in.jsonl", service(id=str(lowest)))).code == 0
    rows = [json.loads(line) for line in run("export_services", slug(tenant)).said.splitlines()[:-1]]
    assert [row["id"] for row in rows] == [str(lowest)]


def test_csv_export_holds_services_only(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    old, new = new_tenant(), new_tenant()
    peopled(old)
    file = tmp_path / "out.csv"
    assert run("export_services", slug(old), file).code == 0
    assert "'=Pay" in file.read_text()
    assert run("import_services", slug(new), file).code == 0
    assert everything(new) == everything(old)


def test_export_omits_and_audits_tampered_secret(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    peopled(tenant)
    ServiceCredential.objects.filter(tenant_id=tenant.id, name="one").update(secret=b"x" * 60)
    file = tmp_path / "out.jsonl"
    assert run("export_services", slug(tenant), file, "--with-secrets", "--yes").code == 0
    rows = [json.loads(line) for line in file.open()]
    assert {row["name"] for row in rows if "secret" in row} == {"two"}
    assert PlatformEvent.objects.filter(tenant_id=tenant.id, action="service_credential.unreadable").count() == 1


def test_service_import_reports_bad_rows(tenant: TestTenant, tmp_path: Path) -> None:
    there = service()
    tenant.api.post(SERVICES, there)
    good = service()
    bad: list[tuple[Any, str, str]] = [
        ({"name": "x"}, "type", "This field is required."),
        (service(base_url="ftp://x"), "base_url", "http"),
        (service(base_url="https://u:p@x.example"), "base_url", "without user name"),
        (service(status="on"), "status", "Send one of"),
        (service(metadata={"a": "x" * 70_000}), "metadata", "bytes"),
        (service(name=" "), "name", "may not be empty"),
        (service(created_at="2999-01-01T00:00:00Z"), "created_at", "past"),
        (there, "name", "has a service of this name"),
        (good, "name", "has a service of this name"),
        (
            {"kind": "credential", "service": "unknown", "name": "a", "secret": "s"},
            "service",
            "no service of this name",
        ),
        ({"kind": "credential", "service": good["name"], "name": "a", "secret": ""}, "secret", "may not be empty"),
        ({"kind": "credential", "service": good["name"], "name": "a", "secret": 7}, "secret", "a string or"),
        ({"kind": "credential", "service": good["name"], "name": "a", "url": "x"}, "url", "no such field"),
        ({"kind": "person"}, "kind", "Send one of"),
        (b"{", "", "not valid JSON"),
    ]
    report = tmp_path / "bad.jsonl"
    file = jsonl(tmp_path / "in.jsonl", good, *(row for row, _, _ in bad))
    ended = run("import_services", slug(tenant), file, "--report", report)
    assert (ended.code, f"1 created, 0 updated, 0 skipped, {len(bad)} failed" in ended.said) == (1, True), ended.said
    found = {(line, field): reason for line, field, reason in reported(report)}
    for line, (_, field, says) in enumerate(bad, 2):
        assert says in found[line, field]


def test_service_import_conflict_modes(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    peopled(tenant)
    rows = [
        service(name="Mail", type="post"),
        {"kind": "credential", "service": "Mail", "name": "one", "secret": "another"},
        {"kind": "credential", "service": "Mail", "name": "new", "secret": "fresh"},
    ]
    file = jsonl(tmp_path / "in.jsonl", *rows)
    says = {"fail": "1 created, 0 updated, 0 skipped, 2 failed", "skip": "0 created, 0 updated, 3 skipped, 0 failed"}
    says["update"] = "0 created, 1 updated, 2 skipped, 0 failed"
    for choice, said in says.items():
        tried = run("import_services", slug(tenant), file, "--on-conflict", choice, "--dry-run")
        done = run("import_services", slug(tenant), file, "--on-conflict", choice)
        assert said in done.said
        assert said in tried.said
    assert Service.objects.get(tenant_id=tenant.id, name="Mail").type == "post"
    assert handed_out(tenant, "Mail") == {"one": "s3cret", "two": {"user": "u", "password": "p"}, "new": "fresh"}
    assert counted(tenant) == 2


def test_service_import_dry_run_changes_nothing(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    one = service()
    rows = [one, {"kind": "credential", "service": one["name"], "name": "a", "secret": "s"}, one]

    def counts() -> list[int]:
        tables = (Service, ServiceCredential, ServiceImport, PlatformEvent)
        return [model.objects.filter(tenant_id=tenant.id).count() for model in tables]

    before = counts()
    ended = run("import_services", slug(tenant), jsonl(tmp_path / "in.jsonl", *rows), "--dry-run", "--batch-size", 1)
    assert "2 created, 0 updated, 0 skipped, 1 failed of 3 rows." in ended.said
    assert counts() == before


def test_killed_service_import_resumes_once(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    held = create_service(tenant_id=tenant.id, name="held", type="payment", base_url="https://a.example.com")
    rows = [service(name=f"s{n:04}") for n in range(400)]
    rows.insert(200, {"kind": "credential", "service": held.name, "name": "a", "secret": "s"})
    command = ["import_services", slug(tenant), jsonl(tmp_path / "in.jsonl", *rows), "--batch-size", 2]
    # It waits for a service that the test has locked, so it still runs when the second one starts. Stopped by a signal
    # it might hold the run, and the second one would wait for it.
    with transaction.atomic():
        Service.objects.select_for_update().get(pk=held.pk)
        with another_process(*command) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if " 40 rows" in line:
                    assert run(*command).code == 2
                    process.kill()
    assert 40 <= Service.objects.filter(tenant_id=tenant.id).count() <= 201
    ended = run(*command, "--resume")
    assert (ended.code, "401 created, 0 updated, 0 skipped, 0 failed" in ended.said) == (0, True)
    assert counted(tenant) == Service.objects.filter(tenant_id=tenant.id).count() == 401


def test_imported_services_stay_in_their_tenant(tenant: TestTenant, other_tenant: TestTenant, tmp_path: Path) -> None:
    row = service(id=str(uuid4()))
    file = jsonl(tmp_path / "in.jsonl", row)
    for each in (tenant, other_tenant):
        assert run("import_services", slug(each), file).code == 0
    mine, theirs = (Service.objects.get(tenant_id=each.id, name=row["name"]) for each in (tenant, other_tenant))
    assert (str(mine.pk), mine.pk != theirs.pk) == (row["id"], True)
    assert other_tenant.api.get(f"{SERVICES}/{mine.pk}").status_code == 404
    secret = jsonl(tmp_path / "c.jsonl", {"kind": "credential", "service": row["name"], "name": "a", "secret": "s"})
    assert run("import_services", slug(other_tenant), secret).code == 0
    assert not ServiceCredential.objects.filter(service=mine).exists()

"""Imports that are tried, killed, resumed and taken over: each user is imported exactly once."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connections, transaction

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.entering.target import TENANT_ALIAS
from tests.userflow.passwords.test_foreign_hashes import HASHES
from tests.userflow.transfer.another_process import another_process
from tests.userflow.transfer.files import address, emails, jsonl, reported, run, slug, table
from tests.world import TestTenant
from userflow.accounts.models import EndUser, Group, GroupMembership, Role, RoleBinding
from userflow.transfer.models import EndUserImport

ROWS = 1500


def many(number: int = ROWS) -> list[dict[str, Any]]:
    """Return rows, every hundredth without an address; the header of a CSV file is line 1."""
    encoded = HASHES["bcrypt 2b"][1]
    return [
        {"email": f"p{n:05}@example.com" if n % 100 else "none", "password_hash": encoded, "groups": "all; some"}
        for n in range(2, number + 2)
    ]


def addresses(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["email"] for row in rows if row["email"] != "none")


def counts(tenant: TestTenant) -> list[int]:
    with in_tenant(tenant.id):
        models = (EndUser, Role, Group, RoleBinding, GroupMembership, TenantEvent, EndUserImport)
        return [model.objects.count() for model in models]


def events(tenant: TestTenant) -> list[tuple[str, Any]]:
    with in_tenant(tenant.id):
        found = TenantEvent.objects.filter(target_kind="end_user_import").order_by("id")
        return list(found.values_list("action", "details"))


def test_import_dry_run_reports_and_changes_nothing(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    person = tenant.register()
    tenant.sign_in(person)
    rows = [*many(300), {"email": person.email}, {"email": "p00002@example.com"}]
    file, report = table(tmp_path / "p.csv", *rows), tmp_path / "bad.csv"
    before = counts(tenant)
    command = ["import_users", slug(tenant), file, "--create-missing", "--batch-size", 50, "--report", report]
    tried = run(*command, "--dry-run")
    assert counts(tenant) == before
    said = reported(report)
    assert [line for line, _, _ in said] == [100, 200, 300, 302, 303]
    done = run(*command)
    assert reported(report) == said
    last = done.said.splitlines()[-1]
    assert (tried.code, tried.said.splitlines()[-1]) == (1, f"Dry run, nothing was changed: {last}")
    assert last == "297 created, 0 updated, 0 skipped, 5 failed of 302 rows."


@contextmanager
def held_at(tenant: TestTenant, email: str) -> Iterator[None]:
    """Hold imports at this row: another transaction has inserted its address and does not commit."""
    with in_tenant(tenant.id), tenant_atomic():
        with connections[TENANT_ALIAS].cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        EndUser.objects.create(email=email, email_key=email, client_id=tenant.client_id)
        yield
        transaction.set_rollback(True, using=TENANT_ALIAS)


def test_killed_import_resumes(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant, rows = new_tenant(), many()
    file, report = table(tmp_path / "p.csv", *rows), tmp_path / "bad.jsonl"
    command = ["import_users", slug(tenant), file, "--create-missing", "--batch-size", 10, "--report", report]
    with held_at(tenant, "p00801@example.com"), another_process(*command) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if " 400 rows" in line:
                process.kill()
    got = len(emails(tenant))
    assert 390 <= got < 800
    ended = run(*command, "--resume")
    assert ended.code == 1
    assert "Continuing after line" in ended.said
    assert "1485 created, 0 updated, 0 skipped, 15 failed of 1500 rows." in ended.said
    assert emails(tenant) == addresses(rows)
    assert [line for line, _, _ in reported(report)] == [n for n in range(2, ROWS + 2) if n % 100 == 0]
    with in_tenant(tenant.id):
        assert GroupMembership.objects.count() == 2 * len(addresses(rows))
        assert EndUserImport.objects.exclude(ended_at=None).count() == EndUserImport.objects.count() == 1
    kinds = [action for action, _ in events(tenant)]
    assert (kinds[0], kinds[-1]) == ("end_user_import.started", "end_user_import.finished")
    assert kinds.count("end_user_import.resumed") == 1
    assert sum(details["created"] for kind, details in events(tenant) if kind.endswith(".batch")) == 1485
    assert "example.com" not in str(events(tenant))


def test_interrupted_import_says_how_to_resume(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant, rows = new_tenant(), many(60)
    file = table(tmp_path / "p.csv", *rows)
    command = ["import_users", slug(tenant), file, "--create-missing", "--batch-size", 10]
    with held_at(tenant, "p00050@example.com"), another_process(*command) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
    assert (process.returncode, "Run the command again with --resume" in said) == (130, True)
    assert run(*command, "--resume").code == 0
    assert emails(tenant) == addresses(rows)


def test_parallel_imports_of_one_file(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant, rows = new_tenant(), many(600)
    file = table(tmp_path / "p.csv", *rows)
    command = ["import_users", slug(tenant), file, "--create-missing", "--batch-size", 1]
    with another_process(*command) as process:
        assert process.stdout is not None
        process.stdout.readline()
        refused = run(*command)
        assert (refused.code, "already being imported" in refused.said) == (2, True)
        took_over = run("import_users", slug(tenant), file, "--create-missing", "--resume")
        rest = process.stdout.read()
        assert (process.wait(), "taken over" in rest) == (2, True)
    assert (took_over.code, "594 created" in took_over.said) == (1, True)
    assert emails(tenant) == addresses(rows)


def test_resume_requires_an_interrupted_import(tenant: TestTenant, tmp_path: Path) -> None:
    file = jsonl(tmp_path / "p.jsonl", {"email": address()})
    assert run("import_users", slug(tenant), file, "--resume").code == 2
    assert run("import_users", slug(tenant), file).code == 0
    again = run("import_users", slug(tenant), file, "--on-conflict", "skip")
    assert (again.code, "1 skipped" in again.said) == (0, True)


def test_restart_forgets_interrupted_import(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    file = jsonl(tmp_path / "p.jsonl", {"email": "a@example.com"}, {"email": "b@example.com"})
    run("import_users", slug(tenant), file)
    with in_tenant(tenant.id):
        # The state after a kill between the last batch and the end.
        EndUserImport.objects.update(ended_at=None)
    assert run("import_users", slug(tenant), file).code == 2
    restarted = run("import_users", slug(tenant), file, "--restart", "--on-conflict", "skip")
    assert (restarted.code, "2 skipped" in restarted.said) == (0, True)
    with in_tenant(tenant.id):
        assert EndUserImport.objects.filter(ended_at=None).count() == 0
        assert EndUserImport.objects.count() == 2


def test_resumed_import_continues_its_report(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    file = jsonl(tmp_path / "p.jsonl", {"email": "one"}, {"email": "a@example.com"}, {"email": "three"})
    for report, rest in ((tmp_path / "bad.csv", '3,email,"Send an e'), (tmp_path / "bad.jsonl", '{"line": 3, "fie')):
        run("import_users", slug(tenant), file, "--report", report, "--on-conflict", "skip")
        before = report.read_text()
        report.write_text("".join(before.splitlines(keepends=True)[:-1]) + rest)
        with in_tenant(tenant.id):
            # The state after a kill in the middle of the second batch.
            last = EndUserImport.objects.order_by("-begun_at").first()
            assert last is not None
            EndUserImport.objects.filter(pk=last.pk).update(ended_at=None, line=1, offset=len(b'{"email": "one"}\n'))
        again = ["import_users", slug(tenant), file, "--report", report, "--on-conflict", "skip", "--resume"]
        assert run(*again).code == 1
        assert [line for line, _, _ in reported(report)] == [1, 3]
    assert run("import_users", slug(tenant), file, "--report", file).code == 2
    assert file.read_bytes().startswith(b'{"email": "one"}')


def test_suspended_tenant_exports_but_rejects_import(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    tenant = new_tenant()
    person = tenant.register()
    assert run("suspend_tenant", slug(tenant)).code == 0
    ended = run("import_users", slug(tenant), jsonl(tmp_path / "p.jsonl", {"email": "a@example.com"}))
    assert (ended.code, "suspended" in ended.said) == (2, True)
    assert person.email in run("export_users", slug(tenant)).said


def test_import_command_rejects_missing_file_or_tenant(tenant: TestTenant, tmp_path: Path) -> None:
    assert run("import_users", slug(tenant), tmp_path / "none.csv").code == 2
    file = jsonl(tmp_path / "p.jsonl", {"email": "a@example.com"})
    assert run("import_users", "no-such-tenant", file).code == 2
    assert run("import_users", slug(tenant), file.rename(tmp_path / "p.txt")).code == 2
    assert run("import_users", slug(tenant), tmp_path / "p.txt", "--format", "jsonl", "--batch-size", 9999).code == 2


def test_unwritable_report_does_not_block_retry(tenant: TestTenant, tmp_path: Path) -> None:
    file, nowhere = jsonl(tmp_path / "p.jsonl", {"email": address()}), tmp_path / "none" / "bad.csv"
    refused = run("import_users", slug(tenant), file, "--report", nowhere)
    assert (refused.code, refused.said) == (2, f"{nowhere}: No such file or directory")
    assert run("import_users", slug(tenant), file).code == 0


def test_unwritable_export_names_its_file(tenant: TestTenant, tmp_path: Path) -> None:
    nowhere = tmp_path / "none" / "people.jsonl"
    refused = run("export_users", slug(tenant), nowhere)
    assert (refused.code, refused.said) == (2, f"{nowhere}: No such file or directory")

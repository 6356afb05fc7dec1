"""Import and export of end users in the console."""

import json
import secrets
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from identity_platform.audit.models import PlatformEvent
from tenants.entering.context import in_tenant
from tests.console.people.browsing import operator_in, text_of
from tests.console.staff import Staff
from tests.world import TestTenant
from userflow.accounts.models import EndUser, EndUserCount

IMPORT, EXPORT = "/admin/inside/people/import/", "/admin/inside/people/export/"


@pytest.fixture
def staff(tenant: TestTenant) -> Staff:
    return operator_in(tenant)


def sent(staff: Staff, tenant: TestTenant, content: bytes, **fields: str) -> Any:
    form = {"form_tenant_id": str(tenant.id), "format": "csv", "on_conflict": "fail", **fields}
    return staff.post(IMPORT, {**form, "file": SimpleUploadedFile("people.csv", content)})


def people_of(tenant: TestTenant, *emails: str) -> set[str]:
    with in_tenant(tenant.id):
        return set(EndUser.objects.filter(email__in=emails).values_list("email", flat=True))


def test_file_is_checked_then_imported(staff: Staff, tenant: TestTenant) -> None:
    email = f"new-{secrets.token_hex(4)}@example.com"
    content = f"email,name\n{email},Nora\nnonsense,Nils\n".encode()
    checked = text_of(sent(staff, tenant, content, dry_run="on"))
    assert ("Would be created" in checked, people_of(tenant, email)) == (True, set())
    imported = text_of(sent(staff, tenant, content))
    assert ("Result of the import" in imported, people_of(tenant, email)) == (True, {email})
    # The row with the error is named by its line.
    assert "email" in imported.partition("Reason")[2]


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\xff\xfe", "not in UTF-8"), (b"nothing,known\n1,2\n", "column"), (b"x" * 930_000, "larger than 900 KB")],
)
def test_unusable_file_is_rejected(staff: Staff, tenant: TestTenant, content: bytes, said: str) -> None:
    response = sent(staff, tenant, content)
    assert response.status_code == 400
    assert said in text_of(response)


def test_import_needs_a_recent_proof(staff: Staff, tenant: TestTenant) -> None:
    staff.time_passes(20)
    assert sent(staff, tenant, b"email\na@example.com\n").headers["Location"].startswith("/admin/reauthenticate/")


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_export_has_every_user_and_no_hash(new_tenant: Callable[[], TestTenant], kind: str) -> None:
    tenant = new_tenant()
    emails = {tenant.register().email, tenant.register().email}
    response = operator_in(tenant).post(EXPORT, {"form_tenant_id": str(tenant.id), "format": kind})
    content = b"".join(response.streaming_content).decode()
    assert all(email in content for email in emails)
    assert "argon2" not in content
    assert "no-store" in response.headers["Cache-Control"]
    if kind == "jsonl":
        assert {json.loads(line)["email"] for line in content.splitlines()} == emails
    assert PlatformEvent.objects.filter(tenant_id=tenant.id, action="end_users.exported").count() == 1


def test_too_many_users_are_not_cut_off(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    tenant.register()
    with in_tenant(tenant.id):
        EndUserCount.objects.update(users=100_001)
    response = operator_in(tenant).post(EXPORT, {"form_tenant_id": str(tenant.id), "format": "csv"})
    assert response.status_code == 400
    assert "export_users" in text_of(response)

"""Files of users, and the commands that read and write them."""

import csv
import io
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management import CommandError, call_command

from tenants.entering.context import in_tenant
from tests.world import TestTenant
from userflow.accounts.models import EndUser, GroupMembership, RoleBinding


@dataclass(frozen=True)
class Ended:
    """The exit code and output of a command."""

    code: int
    said: str


def run(*command: Any, **options: Any) -> Ended:
    """Run a management command; return its exit code and output."""
    said = io.StringIO()
    try:
        call_command(*map(str, command), stdout=said, stderr=said, **options)
    except CommandError as error:
        return Ended(error.returncode, said.getvalue() + str(error))
    except SystemExit as end:
        return Ended(int(end.code or 0), said.getvalue())
    return Ended(0, said.getvalue())


def slug(tenant: TestTenant) -> str:
    return tenant.slug


def address() -> str:
    """Return an unused address."""
    return f"person-{secrets.token_hex(8)}@example.com"


def jsonl(path: Path, *rows: Any) -> Path:
    """Write a file of JSON lines; rows that are no dict are written unchanged."""
    with path.open("wb") as file:
        for row in rows:
            file.write((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n")
    return path


def table(path: Path, *rows: dict[str, Any]) -> Path:
    """Write a CSV file."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def reported(path: Path) -> list[tuple[int, str, str]]:
    """Return line, field and reason of each entry of a report."""
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return [(int(row["line"]), row["field"], row["reason"]) for row in csv.DictReader(file)]
    return [(row["line"], row["field"], row["reason"]) for row in map(json.loads, path.open())]


def emails(tenant: TestTenant) -> list[str]:
    """Return the addresses of a tenant's users, sorted."""
    with in_tenant(tenant.id):
        return sorted(EndUser.objects.values_list("email", flat=True))


def everything(tenant: TestTenant) -> dict[str, dict[str, Any]]:
    """Return all users of a tenant by address, with their exported data."""
    with in_tenant(tenant.id):
        people = {user.pk: user for user in EndUser.objects.all()}
        groups = list(GroupMembership.objects.values_list("user_id", "group__name"))
        roles = list(RoleBinding.objects.values_list("user_id", "role__name"))
    return {
        user.email: {
            "id": user.pk,
            "name": user.name,
            "active": user.active,
            "provider": user.provider,
            "password": user.password,
            "language": user.language,
            "external_id": user.external_id,
            "metadata": user.metadata,
            "app_metadata": user.app_metadata,
            "verified": user.email_verified_at is not None,
            "created_at": user.created_at,
            "last_login": user.last_login,
            "groups": sorted(name for owner, name in groups if owner == user.pk),
            "roles": sorted(name for owner, name in roles if owner == user.pk),
        }
        for user in people.values()
    }

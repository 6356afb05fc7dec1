"""The upgrade to one open invitation per address, in databases that hold several."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connections
from django.db.migrations.loader import MigrationLoader
from django.utils.timezone import now

from tenants.entering.context import in_tenant
from tests.world import TestTenant
from userflow.invitations.models import AdminInvitation, EndUserInvitation

MIGRATION = ("userflow", "0011_one_open_invitation")


@contextmanager
def upgrading(alias: str) -> Iterator[None]:
    """Undo the migration inside the block, then apply it."""
    loader = MigrationLoader(connections[alias])
    before = loader.project_state(MIGRATION, at_end=False)
    migration = loader.get_migration(*MIGRATION)
    with connections[alias].schema_editor() as editor:
        migration.unapply(before.clone(), editor)
    yield
    with connections[alias].schema_editor() as editor:
        migration.apply(before.clone(), editor)


def store(model: type[Any], email: str, days: int, **members: Any) -> Any:
    return model.objects.create(
        email=email,
        email_key=email,
        invited_by_kind="admin",
        invited_by_id=uuid4(),
        token_digest=secrets.token_bytes(32),
        expires_at=now() + timedelta(days=days),
        **members,
    )


def still_open(model: type[Any], email: str) -> list[Any]:
    return list(model.objects.filter(email_key=email, accepted_at=None, cancelled_at=None).values_list("pk", flat=True))


def test_upgrade_keeps_the_newest_end_user_invitation(new_tenant: Callable[[], TestTenant]) -> None:
    tenant, email = new_tenant(), f"{secrets.token_hex(5)}@example.com"
    client = {"client_id": tenant.client_id}
    with in_tenant(tenant.id):
        with upgrading("tenant"):
            accepted = store(EndUserInvitation, email, 7, accepted_at=now(), **client)
            store(EndUserInvitation, email, -1, **client)
            newest = store(EndUserInvitation, email, 6, **client)
            store(EndUserInvitation, email, 5, **client)
            other = store(EndUserInvitation, f"other-{email}", 5, **client)
        assert still_open(EndUserInvitation, email) == [newest.pk]
        assert still_open(EndUserInvitation, f"other-{email}") == [other.pk]
        accepted.refresh_from_db()
        assert accepted.cancelled_at is None


def test_upgrade_keeps_the_newest_admin_invitation_per_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    email = f"{secrets.token_hex(5)}@example.com"
    with upgrading("default"):
        places = (tenant.id, other_tenant.id, None)
        newest = [store(AdminInvitation, email, 7, tenant_id=place).pk for place in places]
        for place in places:
            store(AdminInvitation, email, 3, tenant_id=place)
    assert sorted(still_open(AdminInvitation, email)) == sorted(newest)


@pytest.mark.parametrize("kind", ["admin", "end_user"])
def test_the_database_rejects_a_second_open_invitation(tenant: TestTenant, kind: str) -> None:
    model, members = {
        "admin": (AdminInvitation, {"tenant_id": None}),
        "end_user": (EndUserInvitation, {"client_id": tenant.client_id}),
    }[kind]
    email = f"{secrets.token_hex(5)}@example.com"
    with in_tenant(tenant.id):
        store(model, email, 7, **members)
        with pytest.raises(IntegrityError, match="open_unique"):
            store(model, email, 7, **members)

"""Data of a run: tenants with databases of their own, their users, and tokens to read them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from django.db import connection, connections
from django.utils.timezone import now

from identity_platform.api.email_addresses import email_key
from tenants.entering.context import in_tenant
from tenants.entering.schema import schema_version
from tenants.lifecycle.capacity import main_server
from tenants.models import Tenant, TenantDatabase
from tenants.states import Purpose, State
from userflow.accounts.client_records import CLIENTS
from userflow.accounts.models import AdminUser, Client, EndUser
from userflow.accounts.realms import ADMINS
from userflow.admins.actions import create_admin_user
from userflow.credentials import passwords
from userflow.signin.delivery import ApplicationTokens
from userflow.signin.pipeline import completion_of
from userflow.signin.proofs import PASSWORD_AMR
from userflow.tenants.actions import open_tenant

PASSWORD = "correct horse 9 battery"
Say = Callable[[str], None]


@dataclass(frozen=True)
class BenchTenant:
    """A tenant with users and its admin's token."""

    tenant_id: UUID
    client_id: UUID
    token: str
    users: tuple[UUID, ...]
    emails: tuple[str, ...]


@lru_cache(maxsize=1)
def password_hash() -> str:
    """Return one hash for all users: creating a thousand would take longer than the benchmark."""
    return passwords.hashed(PASSWORD)


def grow(number: int, say: Say) -> None:
    """Create tenants, each with a database, until there are `number`."""
    for count in range(tenants_with_database(), number):
        if count % 50 == 0:
            say(f"tenant {count} of {number}")
        open_tenant(name=f"Tenant {count}")


def register_redirect_uri(tenant: BenchTenant, uri: str) -> None:
    """Let the tenant's default client use this redirect URI and no other."""
    with CLIENTS.changing(tenant.tenant_id, tenant.client_id) as client:
        assert client is not None
        client.redirect_uris = [uri]
        client.save(update_fields=["redirect_uris"])


def tenants_with_database() -> int:
    """Return the number of tenants with a database of their own."""
    return TenantDatabase.objects.filter(status=State.ACTIVE).exclude(name__startswith="known_").count()


def know(number: int) -> None:
    """Add tenants that exist in the global database only, until there are `number`."""
    server, version = main_server(), schema_version()
    missing = number - TenantDatabase.objects.count()
    tenants = Tenant.objects.bulk_create(
        [Tenant(name=f"Known {i}", slug=f"known-{now().timestamp():.0f}-{i}") for i in range(missing)]
    )
    TenantDatabase.objects.bulk_create(
        TenantDatabase(
            tenant=tenant, server=server, name=f"known_{tenant.pk.hex}", status=State.ACTIVE, schema_version=version
        )
        for tenant in tenants
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def tenants_with_users(number: int, users: int, say: Say) -> list[BenchTenant]:
    """Return tenants with at least the given number of end users each."""
    grow(number, say)
    found = Tenant.objects.exclude(database__name__startswith="known_").filter(database__status=State.ACTIVE)
    chosen = []
    for count, tenant in enumerate(found.order_by("created_at", "id")[:number]):
        if count % 50 == 0:
            say(f"users of tenant {count} of {number}")
        chosen.append(with_users(tenant, users))
    return chosen


def with_users(tenant: Tenant, users: int) -> BenchTenant:
    """Add end users until the tenant has at least so many, and sign its admin in."""
    client_id = Client.objects.filter(tenant_id=tenant.pk, is_default=True).values_list("id", flat=True)[0]
    with in_tenant(tenant.pk, Purpose.WRITE):
        missing = users - EndUser.objects.count()
        addresses = [f"person-{random.getrandbits(64):016x}@example.com" for _ in range(missing)]
        EndUser.objects.bulk_create(
            (
                EndUser(
                    email=address,
                    email_key=email_key(address),
                    name=f"Person {number}",
                    client_id=client_id,
                    password=password_hash(),
                    metadata={"department": "Research", "floor": number % 40},
                )
                for number, address in enumerate(addresses)
            ),
            # One statement for all would exceed the tenant's statement timeout.
            batch_size=1000,
        )
        if missing > 0:
            with connections["tenant"].cursor() as cursor:
                cursor.execute("ANALYZE")
        users_of_tenant = list(EndUser.objects.order_by("id").values_list("id", "email")[:users])
    return BenchTenant(
        tenant.pk,
        client_id,
        admin_token(tenant.pk),
        tuple(user for user, _ in users_of_tenant),
        tuple(email for _, email in users_of_tenant),
    )


def admin_token(tenant_id: UUID) -> str:
    """Return an access token of the tenant's admin, with its session."""
    user = AdminUser.objects.filter(tenant_id=tenant_id).first()
    if user is None:
        name = f"admin-{tenant_id.hex[:12]}"
        user, _ = create_admin_user(tenant_id=tenant_id, username=name, email=f"{name}@example.com", password=PASSWORD)
    return token_of(user)


def token_of(user: AdminUser) -> str:
    """Return an access token of an admin user, with its session."""
    with ADMINS.atomic():
        tokens = completion_of(user, amr=PASSWORD_AMR, delivery=ApplicationTokens()).open(ADMINS, user).tokens
    assert tokens is not None  # delivered to an application
    return tokens.access_token


# --- requests --------------------------------------------------------------------------------------------------------


def get(path: str, token: str | None = None) -> bytes:
    """Return the bytes of a GET."""
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n{bearer}\r\n".encode("ascii")


def post(path: str, body: bytes) -> bytes:
    """Return the bytes of a POST with a JSON body."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode("ascii") + b"\r\n\r\n" + body

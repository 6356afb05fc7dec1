"""The hot statements of verifying a code: a user and their secret in one read, a step spent in one write."""

from dataclasses import dataclass
from uuid import UUID

from django.db import connections

from identity_platform.api.email_addresses import email_key
from mfa.totp.models import AdminTotpSecret, EndUserTotpSecret
from userflow.realms import END_USERS, Realm


@dataclass(frozen=True, slots=True)
class Holder:
    """An active user, with the confirmed secret if there is one."""

    pk: UUID
    email: str
    # Of an admin user who belongs to a tenant.
    tenant_id: UUID | None
    secret_id: UUID | None
    sealed: bytes | None
    last_step: int | None


_HOLDER = """
SELECT u.id, u.email, {tenant}, s.id, s.secret_sealed, s.last_step FROM {users} u
LEFT JOIN {secrets} s ON s.user_id = u.id AND s.confirmed_at IS NOT NULL WHERE u.email_key = %s AND u.active
"""
# A step at or before the last one is not taken again; of two requests at once one finds the row as it was.
_SPEND = """
UPDATE {secrets} SET last_step = %(step)s, last_used_at = now()
WHERE id = %(id)s AND confirmed_at IS NOT NULL AND (last_step IS NULL OR last_step < %(step)s)
"""


def _tables(realm: Realm) -> dict[str, str]:
    secrets = EndUserTotpSecret if realm is END_USERS else AdminTotpSecret
    tenant = "NULL::uuid" if realm is END_USERS else "u.tenant_id"
    return {"users": realm.users._meta.db_table, "secrets": secrets._meta.db_table, "tenant": tenant}


def holder_of(realm: Realm, email: str) -> Holder | None:
    """The active user with this address."""
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(_HOLDER.format(**_tables(realm)), [email_key(email)])
        row = cursor.fetchone()
    return Holder(*row) if row else None


def spend_step(realm: Realm, secret_id: UUID, step: int) -> bool:
    """Whether this call used the step up."""
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(_SPEND.format(**_tables(realm)), {"id": secret_id, "step": step})
        return bool(cursor.rowcount == 1)

"""Write and read the index of the end users of all tenants.

It follows the tenants' databases: triggers note what a transaction has changed, and it is delivered after the commit
(`tenants.journals.deliveries`). What differs in any case, `actions.index_end_users` removes.
"""

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from django.db import connections

from identity_platform.crypto import keyed_digest
from identity_platform.postgresql.transactions import advisory_lock, try_advisory_lock
from tenants import keys
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.entering.router import GLOBAL_ALIAS
from tenants.entering.target import TENANT_ALIAS
from tenants.states import Purpose
from userflow.accounts.models import EndUser
from userflow.user_index.models import IndexedEndUser, UnindexedEndUser

# Rows of one statement.
AT_ONCE: Final = 5000
DELIVERY_LOCK: Final = 7_215_021
# With arrays: the ORM passes each value as a parameter, which makes large imports twice as slow.
_STORE: Final = (
    "INSERT INTO userflow_indexedenduser (tenant_id, user_id, digest)"
    " SELECT %s, user_id, digest FROM unnest(%s::uuid[], %s::bytea[]) AS indexed(user_id, digest)"
    " ON CONFLICT (tenant_id, user_id) DO UPDATE SET digest = excluded.digest"
)


def digest_of(key: str) -> bytes:
    """Return the digest of an address (its `email_key`).

    The same address has the same digest in every tenant, so a search is one look-up. The key is derived from the platform's
    data key: without the key ring, no guessed address can be tried on a copy of the table, and a rotation of the ring leaves
    the digests valid.
    """
    digest = keyed_digest(key, key=keys.platform_key(), purpose="index of end users by address")
    return digest[: IndexedEndUser.DIGEST_BYTES]


def deliver(tenant_id: UUID, *, batches: int | None = None) -> bool:
    """Index end users of a tenant whom triggers have noted; return whether more wait. Safe to call concurrently.

    Raises UnknownTenant, TenantSuspended, TenantBusy, DataKeyLocked, and errors of either database.
    """
    with in_tenant(tenant_id, Purpose.RECORD):
        while batches is None or batches > 0:
            if not _deliver_batch(tenant_id, wait=batches is None):
                return False
            batches = None if batches is None else batches - 1
    return True


def _deliver_batch(tenant_id: UUID, *, wait: bool) -> bool:
    """Return whether more notes wait. `wait` for another delivery that is under way."""
    with tenant_atomic():
        # Until the entries are stored: otherwise of two deliveries the one that has read the users earlier could store last.
        if wait:
            advisory_lock(TENANT_ALIAS, DELIVERY_LOCK)
        elif not try_advisory_lock(TENANT_ALIAS, DELIVERY_LOCK):
            return True
        rows = list(UnindexedEndUser.objects.order_by("pk").values_list("pk", "user_id")[:AT_ONCE])
        if not rows:
            return False
        noted_ids = {user_id for _, user_id in rows}
        email_keys = dict(EndUser.objects.filter(pk__in=noted_ids).values_list("pk", "email_key"))
        store(tenant_id, {user_id: digest_of(key) for user_id, key in email_keys.items()})
        remove(tenant_id, noted_ids - email_keys.keys())
        UnindexedEndUser.objects.filter(pk__in=[pk for pk, _ in rows]).delete()
    return len(rows) == AT_ONCE


def store(tenant_id: UUID, digests: Mapping[UUID, bytes]) -> None:
    """Store entries of a tenant, or replace their digests."""
    if not digests:
        return
    # In the order of the ids, so that two transactions do not deadlock.
    ids = sorted(digests)
    with connections[GLOBAL_ALIAS].cursor() as cursor:
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            cursor.execute(_STORE, [tenant_id, some, [digests[user_id] for user_id in some]])


def remove(tenant_id: UUID, user_ids: Collection[UUID]) -> None:
    """Delete entries of a tenant."""
    left = sorted(user_ids)
    for start in range(0, len(left), AT_ONCE):
        some = left[start : start + AT_ONCE]
        IndexedEndUser.objects.filter(tenant_id=tenant_id, user_id__in=some).delete()


def remove_tenant(sender: object, *, tenant_id: UUID, **_: object) -> None:
    """Delete all entries of a tenant, in the transaction that deletes its other rows."""
    IndexedEndUser.objects.filter(tenant_id=tenant_id).delete()


def after(tenant_id: UUID, user_id: UUID, size: int) -> dict[UUID, bytes]:
    """Return the next entries of a tenant after this id, in the order of the ids."""
    rows = IndexedEndUser.objects.filter(tenant_id=tenant_id, user_id__gt=user_id).order_by("user_id")
    return {pk: bytes(digest) for pk, digest in rows.values_list("user_id", "digest")[:size]}

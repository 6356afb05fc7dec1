"""Write and read the index of the end users of all tenants.

It follows the tenants' databases: what a tenant's transaction has changed is written after the commit. If the process is
killed in between, or the global database does not respond, a difference remains, which `actions.index_end_users` removes.
"""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Final
from uuid import UUID

import structlog
from django.db import connections, transaction

from identity_platform.crypto import keyed_digest
from tenants import keys
from tenants.entering.context import current_tenant
from tenants.entering.router import GLOBAL_ALIAS
from tenants.entering.target import TENANT_ALIAS
from tenants.failure_reasons import why
from userflow.user_index.models import IndexedEndUser

log = structlog.get_logger("identity.user_index")

# Rows of one statement.
AT_ONCE: Final = 5000
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


def index_after_commit(email_keys: Mapping[UUID, str]) -> None:
    """Index end users of the entered tenant by their `email_key`, once its transaction is committed.

    Call it in the transaction that stores them or changes their addresses.
    """
    _after_commit(current_tenant().tenant_id, email_keys, [])


def unindex_after_commit(user_ids: Collection[UUID]) -> None:
    """Remove end users of the entered tenant from the index, likewise. Call it in the transaction that deletes them."""
    _after_commit(current_tenant().tenant_id, {}, user_ids)


def _after_commit(tenant_id: UUID, email_keys: Mapping[UUID, str], gone: Collection[UUID]) -> None:
    if email_keys or gone:
        transaction.on_commit(partial(_follow, tenant_id, email_keys, gone), using=TENANT_ALIAS)


def _follow(tenant_id: UUID, email_keys: Mapping[UUID, str], gone: Collection[UUID]) -> None:
    # Accepted race: of two changes of one user at the same moment, the first may be written last, until the next comparison.
    try:
        store(tenant_id, {user_id: digest_of(key) for user_id, key in email_keys.items()})
        remove(tenant_id, gone)
    except Exception as problem:
        # The change itself is committed, so the request succeeds.
        log.warning("end_users_not_indexed", tenant=str(tenant_id), cause=why(problem), next="index_end_users")


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

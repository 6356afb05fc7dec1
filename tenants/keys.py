"""Data keys: one per tenant and one for the platform, wrapped by the key ring, unwrapped once per process."""

from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final
from uuid import UUID

import structlog
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import Count

from identity_platform import shared_facts
from identity_platform.crypto import (
    RingKeyMissing,
    SealBroken,
    key_ring,
    new_data_key,
    rewrap,
    unwrap_data_key,
    wrap_data_key,
)
from tenants.errors import DataKeyLocked
from tenants.models import DataKey

log = structlog.get_logger("identity.tenants")

_FACT: Final = "data key:{}"


def create(owner: str) -> None:
    """Create the owner's data key unless it exists. Safe to call concurrently."""
    wrapped = wrap_data_key(new_data_key(), owner=owner)
    DataKey.objects.bulk_create(
        [DataKey(owner=owner, ring_key_id=wrapped.key_id, wrapped=wrapped.blob)], ignore_conflicts=True
    )


# Unwrapping is one query and one AES-GCM operation; the most recently used keys are cached. Errors are not.
@lru_cache(maxsize=2048)
def _key(owner: str) -> bytes:
    """Read and unwrap the owner's data key. The platform's key is created at first use. Raises DataKeyLocked."""
    try:
        row = _stored(owner)
    except (OperationalError, InterfaceError):
        connection.close_if_unusable_or_obsolete()
        row = shared_facts.read(_FACT.format(owner), partial(_from_fact, owner))
        if row is None:
            raise
    try:
        if row is None:
            raise DataKey.DoesNotExist
        return unwrap_data_key(row.ring_key_id, bytes(row.wrapped), owner=owner)
    except (RingKeyMissing, SealBroken, DataKey.DoesNotExist) as problem:
        log.error(
            "data_key_locked",
            owner=owner,
            kind=type(problem).__name__,
            ring_key_id=row.ring_key_id if row is not None else None,
        )
        raise DataKeyLocked from problem


def _from_fact(owner: str, shared: list[str]) -> DataKey:
    ring_key_id, wrapped = shared
    return DataKey(owner=owner, ring_key_id=ring_key_id, wrapped=b64decode(wrapped))


def _stored(owner: str) -> DataKey | None:
    """Return the owner's data key, and share it, wrapped, with processes that start while the global database is away."""
    row = DataKey.objects.filter(pk=owner).first()
    if row is None and owner == DataKey.PLATFORM:
        create(owner)
        row = DataKey.objects.get(pk=owner)
    if row is not None:
        shared_facts.write(_FACT.format(owner), [row.ring_key_id, b64encode(row.wrapped).decode()])
    return row


def tenant_key(tenant_id: UUID) -> bytes:
    """Return the key that seals this tenant's secrets. Raises DataKeyLocked (503)."""
    return _key(str(tenant_id))


def platform_key() -> bytes:
    """Return the key that seals the platform's own secrets: signing keys, server addresses, admin users' factors.

    Raises DataKeyLocked (503).
    """
    return _key(DataKey.PLATFORM)


def is_readable(owner: str) -> bool:
    """Return whether the owner's data key is stored and can be decrypted."""
    row = DataKey.objects.filter(pk=owner).first()
    try:
        return row is not None and bool(unwrap_data_key(row.ring_key_id, bytes(row.wrapped), owner=owner))
    except (RingKeyMissing, SealBroken):
        return False


def forget(owner: str) -> None:
    """Remove all unwrapped keys from the cache, and the wrapped one that is shared, after the deletion of the owner's."""
    _key.cache_clear()
    shared_facts.remove(_FACT.format(owner))


# --- rotation of the key ring ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a rotation: the number of rewrapped keys, and the owners whose key cannot be decrypted."""

    done: int
    failed: tuple[str, ...]


def under_each_ring_key() -> dict[str, int]:
    """Return how many data keys each ring key wraps, by id. Unused ids are not included."""
    counted = DataKey.objects.values_list("ring_key_id").annotate(Count("owner")).order_by("ring_key_id")
    return dict(counted)


def rewrap_in_batches(size: int = 200) -> Iterator[Batch]:
    """Rewrap every data key under the first key of the ring, `size` of them per transaction.

    The data keys and everything sealed with them stay the same, so requests continue. After a kill the next run does the
    rest. A key that cannot be decrypted (altered, or its ring key is missing) is reported and not changed.
    """
    last = ""
    while True:
        with transaction.atomic():
            rows = list(
                DataKey.objects.select_for_update(no_key=True)
                .exclude(ring_key_id=key_ring().primary_id)
                .filter(owner__gt=last)
                .order_by("owner")[:size]
            )
            failed = tuple(row.owner for row in rows if not _rewrapped(row))
            done = [row for row in rows if row.owner not in failed]
            DataKey.objects.bulk_update(done, ["ring_key_id", "wrapped"])
        for row in done:
            shared_facts.remove(_FACT.format(row.owner))
        if not rows:
            return
        yield Batch(len(done), failed)
        last = rows[-1].owner


def _rewrapped(row: DataKey) -> bool:
    try:
        row.ring_key_id, row.wrapped = rewrap(row.ring_key_id, row.wrapped, owner=row.owner)
    except (RingKeyMissing, SealBroken):
        return False
    return True


def locked_owners() -> Iterator[str]:
    """Yield the owners whose data key this process cannot decrypt."""
    for row in DataKey.objects.order_by("owner").iterator():
        try:
            unwrap_data_key(row.ring_key_id, row.wrapped, owner=row.owner)
        except (RingKeyMissing, SealBroken):
            yield row.owner

"""The data keys: one per tenant and one for the platform, wrapped by the key ring, opened once per process."""

from collections import OrderedDict
from threading import Lock
from uuid import UUID

from identity_platform.crypto import new_data_key, unwrap_data_key, wrap_data_key
from tenants.models import DataKey

# Opening is one query and one AES-GCM; the most used tenants' keys stay at hand.
KEPT = 2048
_opened: OrderedDict[str, bytes] = OrderedDict()
_lock = Lock()


def make(owner: str) -> None:
    """Make the owner's data key unless it exists; twice at once makes one."""
    wrapped = wrap_data_key(new_data_key(), owner=owner)
    DataKey.objects.bulk_create(
        [DataKey(owner=owner, ring_key_id=wrapped.key_id, wrapped=wrapped.blob)], ignore_conflicts=True
    )


def _key(owner: str) -> bytes:
    with _lock:
        if owner in _opened:
            _opened.move_to_end(owner)
            return _opened[owner]
    row = DataKey.objects.get(pk=owner)
    opened = unwrap_data_key(row.ring_key_id, bytes(row.wrapped), owner=owner)
    with _lock:
        _opened[owner] = opened
        if len(_opened) > KEPT:
            _opened.popitem(last=False)
    return opened


def tenant_key(tenant_id: UUID) -> bytes:
    """The key that seals this tenant's secrets."""
    return _key(str(tenant_id))


def platform_key() -> bytes:
    """The key that seals the platform's own secrets (signing keys, server addresses, admin users' factors)."""
    try:
        return _key(DataKey.PLATFORM)
    except DataKey.DoesNotExist:
        make(DataKey.PLATFORM)
        return _key(DataKey.PLATFORM)


def forget(owner: str | None = None) -> None:
    """Drop opened keys: of a deleted tenant, or all."""
    with _lock:
        if owner is None:
            _opened.clear()
        else:
            _opened.pop(owner, None)

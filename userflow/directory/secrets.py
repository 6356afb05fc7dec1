"""Secrets of directories as bytes that open for one target only: this tenant, this configuration, this server.

The target is part of the seal. Who may write to the table, but holds no key, could otherwise have the secret sent to a
server of their own by changing the address beside it.
"""

from hashlib import sha256
from typing import Any
from uuid import UUID

import orjson

from identity_platform.crypto import SealContext, seal, unseal


def _place(tenant_id: UUID, config_id: UUID, target: dict[str, Any]) -> SealContext:
    digest = sha256(orjson.dumps(target, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return SealContext(
        tenant=str(tenant_id), table="userflow_directoryconfig", column="secret", row=f"{config_id}/{digest}"
    )


def seal_secret(secret: str, *, data_key: bytes, tenant_id: UUID, config_id: UUID, target: dict[str, Any]) -> bytes:
    """Seal a secret for its configuration and target (AES-256-GCM under the tenant's data key)."""
    return seal(secret.encode(), data_key=data_key, context=_place(tenant_id, config_id, target))


def open_secret(sealed: bytes, *, data_key: bytes, tenant_id: UUID, config_id: UUID, target: dict[str, Any]) -> str:
    """Give the secret back. Raises SealBroken when it was altered, or the target is not the one it was entered for."""
    return unseal(sealed, data_key=data_key, context=_place(tenant_id, config_id, target)).decode()

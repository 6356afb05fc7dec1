"""Seal the secrets of directories for one tenant, configuration and target.

The target is part of the seal's context. Otherwise an attacker who can write to the table, but holds no key, could change
the server's address and receive the secret.
"""

from hashlib import sha256
from uuid import UUID

import orjson

from identity_platform.crypto import SealContext, seal, unseal
from userflow.directory.models import Target


def _place(tenant_id: UUID, config_id: UUID, target: Target) -> SealContext:
    digest = sha256(orjson.dumps(target, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return SealContext(
        tenant=str(tenant_id), table="userflow_directoryconfig", column="secret", row=f"{config_id}/{digest}"
    )


def seal_secret(secret: str, *, data_key: bytes, tenant_id: UUID, config_id: UUID, target: Target) -> bytes:
    """Seal a secret for its configuration and target (AES-256-GCM under the tenant's data key)."""
    return seal(secret.encode(), data_key=data_key, context=_place(tenant_id, config_id, target))


def open_secret(sealed: bytes, *, data_key: bytes, tenant_id: UUID, config_id: UUID, target: Target) -> str:
    """Open a sealed secret. Raises SealBroken if it was altered or entered for another target."""
    return unseal(sealed, data_key=data_key, context=_place(tenant_id, config_id, target)).decode()

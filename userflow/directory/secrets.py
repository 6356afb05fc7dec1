"""Seal the secrets of directories for one tenant, configuration and target.

The target is part of the seal's context. Otherwise an attacker who can write to the table, but holds no key, could change
the server's address and receive the secret.
"""

from hashlib import sha256

import orjson

from identity_platform.crypto import SealContext, seal, unseal
from tenants import keys
from userflow.directory.models import DirectoryConfig


def _context(config: DirectoryConfig) -> SealContext:
    digest = sha256(orjson.dumps(config.target, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return SealContext(
        tenant=str(config.tenant_id), table="userflow_directoryconfig", column="secret", row=f"{config.pk}/{digest}"
    )


def seal_secret(secret: str, config: DirectoryConfig) -> bytes:
    """Seal a secret for the configuration and its target (AES-256-GCM under the tenant's data key). Raises DataKeyLocked."""
    return seal(secret.encode(), data_key=keys.tenant_key(config.tenant_id), context=_context(config))


def open_secret(config: DirectoryConfig) -> str:
    """Open the configuration's secret.

    Raises SealBroken if it was altered or entered for another target, and DataKeyLocked.
    """
    sealed = bytes(config.secret)
    return unseal(sealed, data_key=keys.tenant_key(config.tenant_id), context=_context(config)).decode()

"""Seal the secrets of service credentials for one tenant, service and row."""

from uuid import UUID

import orjson

from identity_platform.crypto import SealContext, seal, unseal
from tenants import keys

# A string or a JSON object.
Secret = str | dict[str, object]


def _context(tenant_id: UUID, service_id: UUID, credential_id: UUID) -> SealContext:
    # The service is part of the context: an attacker who can write to the table, but holds no key, could otherwise bind a
    # secret to a service of their own and read it through the API.
    return SealContext(
        tenant=str(tenant_id),
        table="registry_servicecredential",
        column="secret",
        row=f"{service_id}/{credential_id}",
    )


def seal_secret(secret: object, *, tenant_id: UUID, service_id: UUID, credential_id: UUID) -> bytes:
    """Seal a string or an object for its row (AES-256-GCM under the tenant's data key). Raises DataKeyLocked."""
    context = _context(tenant_id, service_id, credential_id)
    return seal(orjson.dumps(secret), data_key=keys.tenant_key(tenant_id), context=context)


def open_secret(sealed: bytes, *, tenant_id: UUID, service_id: UUID, credential_id: UUID) -> Secret:
    """Open a sealed secret.

    Raises SealBroken if it was altered or copied from another row, service or tenant, and DataKeyLocked.
    """
    context = _context(tenant_id, service_id, credential_id)
    opened = unseal(sealed, data_key=keys.tenant_key(tenant_id), context=context)
    secret: Secret = orjson.loads(opened)
    return secret

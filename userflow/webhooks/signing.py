"""Signatures of Standard Webhooks (https://www.standardwebhooks.com), symmetric, and the secrets behind them."""

import base64
import hmac
import os
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from identity_platform.crypto import SealContext, seal, unseal
from tenants import keys

PREFIX: Final = "whsec_"
# "Between 24 bytes (192 bits) and 64 bytes (512 bits)".
SECRET_BYTES: Final = 32


def new_secret() -> str:
    """A fresh secret as its owner gets to see it, once: base64 behind `whsec_`."""
    return PREFIX + base64.b64encode(os.urandom(SECRET_BYTES)).decode()


def seal_secret(secret: str, *, tenant_id: UUID, endpoint_id: UUID) -> bytes:
    """Seal a secret for its endpoint, under the tenant's data key."""
    return seal(secret.encode(), data_key=keys.tenant_key(tenant_id), context=_place(tenant_id, endpoint_id))


def open_secret(sealed: bytes, *, tenant_id: UUID, endpoint_id: UUID) -> str:
    """Give the secret back. Raises SealBroken when it was altered or is another endpoint's."""
    opened = unseal(sealed, data_key=keys.tenant_key(tenant_id), context=_place(tenant_id, endpoint_id))
    return opened.decode()


def _place(tenant_id: UUID, endpoint_id: UUID) -> SealContext:
    # The one before the last stands in a column of its own, and is the same sealed bytes.
    return SealContext(tenant=str(tenant_id), table="userflow_webhookendpoint", column="secret", row=str(endpoint_id))


def headers(*, message_id: str, timestamp: int, body: bytes, secrets: Iterable[str]) -> dict[str, str]:
    """The three headers of a delivery; one signature for each secret, so that a consumer may know either.

    Signed is `id.timestamp.body` (Standard Webhooks, "Signature scheme").
    """
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    signatures = (hmac.digest(base64.b64decode(secret.removeprefix(PREFIX)), signed, "sha256") for secret in secrets)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(signature).decode()}" for signature in signatures),
    }

"""Secrets of webhook endpoints, and the signatures of Standard Webhooks (https://www.standardwebhooks.com)."""

import base64
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from standardwebhooks import Webhook

from identity_platform.crypto import SealContext, seal, unseal
from tenants import keys

PREFIX: Final = "whsec_"
# The specification asks for 24 to 64 bytes.
SECRET_BYTES: Final = 32


def new_secret() -> str:
    """Return a random secret in the form that its owner sees once: base64 behind `whsec_`."""
    return PREFIX + base64.b64encode(os.urandom(SECRET_BYTES)).decode()


def seal_secret(secret: str, *, tenant_id: UUID, endpoint_id: UUID) -> bytes:
    """Seal a secret for its endpoint under the tenant's data key."""
    return seal(secret.encode(), data_key=keys.tenant_key(tenant_id), context=_context(tenant_id, endpoint_id))


def open_secret(sealed: bytes, *, tenant_id: UUID, endpoint_id: UUID) -> str:
    """Open a sealed secret. Raises SealBroken if it was altered or belongs to another endpoint."""
    opened = unseal(sealed, data_key=keys.tenant_key(tenant_id), context=_context(tenant_id, endpoint_id))
    return opened.decode()


def _context(tenant_id: UUID, endpoint_id: UUID) -> SealContext:
    # A rotation copies the sealed bytes to the column of the previous secret, so both columns share one context.
    return SealContext(tenant=str(tenant_id), table="userflow_webhookendpoint", column="secret", row=str(endpoint_id))


def headers(*, message_id: str, timestamp: int, body: bytes, secrets: Iterable[str]) -> dict[str, str]:
    """Return the three signature headers, with one signature per secret: after a rotation either secret verifies."""
    sent_at, text = datetime.fromtimestamp(timestamp, UTC), body.decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(Webhook(secret).sign(message_id, sent_at, text) for secret in secrets),
    }

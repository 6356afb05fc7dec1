"""Verify webhooks (https://www.standardwebhooks.com)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError
from standardwebhooks.webhooks import EmptyWebhookSecretError

from identity_sdk.errors import WebhookInvalid


@dataclass(frozen=True)
class WebhookEvent:
    """One event. A message can arrive twice: remember `id`."""

    id: str
    type: str
    timestamp: str
    data: dict[str, Any]


def verify_webhook(secret: str, body: bytes, headers: Mapping[str, str]) -> WebhookEvent:
    """Verify signature and time of a request and return its event.

    Args:
        body: the bytes as received.

    Raises WebhookInvalid, and ValueError if the secret is none: that is an error of the configuration.
    """
    try:
        webhook = Webhook(secret)
    except (EmptyWebhookSecretError, ValueError, RuntimeError) as error:
        raise ValueError("The secret of the webhook is not valid. Use the one that the platform has shown.") from error
    lowered = {name.lower(): value for name, value in headers.items()}
    try:
        webhook.verify(body, lowered, json_parse=False)
    except (WebhookVerificationError, ValueError) as error:  # ValueError: a signature that is not base64, or not UTF-8
        raise WebhookInvalid("The signature of the webhook is missing, wrong or too old.") from error
    said = json.loads(body)
    return WebhookEvent(lowered["webhook-id"], said["type"], said["timestamp"], said["data"])

"""The identity platform for Python: sign-in, calls, back ends, verification of tokens and webhooks."""

from identity_sdk.backend import ClientCredentials, Registry, ServiceCredential
from identity_sdk.client import IdentityClient, SecondStep
from identity_sdk.errors import (
    AccessDenied,
    ApiError,
    IdentityError,
    InvalidResponse,
    SignedOut,
    StepUpRequired,
    WebhookInvalid,
)
from identity_sdk.storage import MemoryStorage, Tokens, TokenStorage
from identity_sdk.verification import Principal, Verifier
from identity_sdk.webhooks import WebhookEvent, verify_webhook

__all__ = [
    "AccessDenied",
    "ApiError",
    "ClientCredentials",
    "IdentityClient",
    "IdentityError",
    "InvalidResponse",
    "MemoryStorage",
    "Principal",
    "Registry",
    "SecondStep",
    "ServiceCredential",
    "SignedOut",
    "StepUpRequired",
    "TokenStorage",
    "Tokens",
    "Verifier",
    "WebhookEvent",
    "WebhookInvalid",
    "verify_webhook",
]

"""A sign-in at a local provider: request, visit of the browser, callback."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from federation.upstream.authorization import AuthorizationRequest, new_authorization_request
from federation.upstream.cached_documents import DocumentCache
from federation.upstream.clients import ClientSecret, UpstreamClient
from federation.upstream.discovery import metadata_of
from federation.upstream.errors import Reason, UpstreamError
from federation.upstream.identities import UpstreamIdentity
from federation.upstream.sign_in import PendingSignIn, complete_sign_in
from tests.federation.upstream.provider import Provider

REDIRECT_URI = "https://login.tenant.example/sso/callback"
STATE = "state-with-256-bits-that-no-other-caller-knows"

Callback = list[tuple[str, str]]


def client_of(provider: Provider, **changes: Any) -> UpstreamClient:
    """Return the client of a new connection to a provider."""
    return UpstreamClient(
        **{
            "connection_id": uuid4(),
            "issuer": provider.issuer,
            "client_id": provider.client_id,
            "credential": ClientSecret(provider.client_secret),
            "token_endpoint": f"{provider.issuer}/token",
            **changes,
        }
    )


def pending_of(request: AuthorizationRequest, state: str = STATE) -> PendingSignIn:
    """Return what the stored attempt remembers of a request."""
    return PendingSignIn(REDIRECT_URI, state, request.nonce, request.code_verifier)


def begin(client: UpstreamClient, state: str = STATE) -> AuthorizationRequest:
    """Make an authorization request."""
    return new_authorization_request(client, metadata_of(client), redirect_uri=REDIRECT_URI, state=state)


def sign_in(
    provider: Provider,
    client: UpstreamClient | None = None,
    change: Callable[[Callback], Callback] = lambda callback: callback,
) -> UpstreamIdentity:
    """Sign in at a provider; `change` is what an attacker does to the callback."""
    client = client or client_of(provider)
    request = begin(client)
    return complete_sign_in(client, pending_of(request), change(provider.authorize(request.url)))[0]


def failure(
    provider: Provider,
    client: UpstreamClient | None = None,
    change: Callable[[Callback], Callback] = lambda callback: callback,
) -> UpstreamError:
    """Return the error of a sign-in that fails."""
    with pytest.raises(UpstreamError) as caught:
        sign_in(provider, client, change)
    return caught.value


def reason(provider: Provider, client: UpstreamClient | None = None) -> Reason:
    """Return the reason of a sign-in that fails."""
    return failure(provider, client).reason


def other_client(client: UpstreamClient, **changes: Any) -> UpstreamClient:
    """Return a client with other values."""
    return replace(client, **changes)


def let_time_pass(cache: DocumentCache[Any], seconds: float) -> None:
    """Make everything in a cache older."""
    for entry in cache._entries.values():
        entry.tried_at -= seconds
        entry.read_at -= seconds

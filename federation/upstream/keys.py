"""Keys of OpenID providers: fetched, cached, and fetched again once for a token with an unknown key."""

from collections.abc import Callable
from typing import Final, TypeVar

from federation.upstream import calls
from federation.upstream.cached_documents import DocumentCache
from federation.upstream.clients import UpstreamClient
from federation.upstream.discovery import metadata_of
from federation.upstream.errors import Reason, UpstreamError
from userflow.sessions.client_keys import ClientKey, KeySetInvalid, read_key_set
from userflow.sessions.foreign_tokens import (
    ForeignKeyUnknown,
    ForeignLogout,
    ForeignTokenInvalid,
    verify_id_token,
    verify_logout_token,
)

# Providers with many tenants publish more keys than a client may register.
MOST_KEYS: Final = 100

Keys = tuple[ClientKey, ...]
Verified = TypeVar("Verified")

_cache: DocumentCache[Keys] = DocumentCache()


def id_token_claims(
    client: UpstreamClient,
    token: str,
    *,
    nonce: str,
    access_token: str | None = None,
    max_age: int | None = None,
    moment: float | None = None,
) -> dict[str, object]:
    """Return the claims of an ID token of the client's provider (see `verify_id_token`). Raises UpstreamError."""
    return _verified(
        client,
        lambda keys: verify_id_token(
            token,
            keys=keys,
            expected=client.expected,
            nonce=nonce,
            access_token=access_token,
            max_age=max_age,
            moment=moment,
        ),
    )


def read_logout_token(client: UpstreamClient, token: str, *, moment: float | None = None) -> ForeignLogout:
    """Return whose sessions a logout token of the client's provider ends (see `verify_logout_token`).

    Callers take each `token_id` of the connection once. Raises UpstreamError.
    """
    return _verified(
        client, lambda keys: verify_logout_token(token, keys=keys, expected=client.expected, moment=moment)
    )


def _verified(client: UpstreamClient, verify: Callable[[Keys], Verified]) -> Verified:
    """Verify a token with the cached keys; if they cannot have signed it, once more with keys that are fetched again."""
    uri = metadata_of(client).jwks_uri
    keys = _cache.get(client.connection_id, uri, lambda: _fetch(uri, client.authorities))
    try:
        try:
            return verify(keys)
        except ForeignKeyUnknown:
            fresh = _cache.get(
                client.connection_id,
                uri,
                lambda: _fetch(uri, client.authorities),
                # Another thread may have fetched them in the meantime.
                suffices=lambda cached: cached is not keys,
            )
            if fresh is keys:
                raise
            return verify(fresh)
    except ForeignTokenInvalid as problem:
        raise UpstreamError.of_token(problem) from problem


def _fetch(uri: str, authorities: str) -> Keys:
    document = calls.get_json(uri, authorities=authorities)
    try:
        return read_key_set(document, lenient=True, most=MOST_KEYS)
    except KeySetInvalid as problem:
        raise UpstreamError(Reason.KEYS_INVALID, expected="a JSON Web Key Set", received=str(problem)) from problem

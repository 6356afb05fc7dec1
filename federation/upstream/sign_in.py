"""From the callback of a provider to the identity that it proves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from federation.upstream import calls
from federation.upstream.authorization import read_callback
from federation.upstream.clients import Rules, UpstreamClient
from federation.upstream.discovery import ProviderMetadata, metadata_of
from federation.upstream.errors import Reason, UpstreamError
from federation.upstream.identities import (
    PROTOCOL_CLAIMS,
    UpstreamIdentity,
    identity_of_claims,
    identity_of_github,
)
from federation.upstream.keys import id_token_claims
from federation.upstream.token_request import TokenResponse, exchange_code


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """What the stored attempt remembers of the authorization request. No value of it comes from the callback."""

    redirect_uri: str
    state: str = field(repr=False)
    nonce: str = field(repr=False)
    code_verifier: str = field(repr=False)
    max_age: int | None = None


def complete_sign_in(
    client: UpstreamClient,
    pending: PendingSignIn,
    parameters: Iterable[tuple[str, str]],
    *,
    moment: float | None = None,
) -> tuple[UpstreamIdentity, TokenResponse]:
    """Return the identity that a callback proves, and the provider's tokens, which callers drop unless a tenant keeps them.

    `parameters` are those of the query, or of the form that Apple posts. `moment` is now unless it is given.
    Raises UpstreamError.
    """
    pairs = list(parameters)
    metadata = metadata_of(client)
    code = read_callback(client, metadata, pairs, state=pending.state)
    tokens = exchange_code(
        client, metadata, code=code, redirect_uri=pending.redirect_uri, code_verifier=pending.code_verifier
    )
    if client.rules == Rules.GITHUB:
        return _github_identity(client, metadata, tokens.access_token), tokens
    claims = id_token_claims(
        client,
        tokens.id_token,
        nonce=pending.nonce,
        access_token=tokens.access_token,
        max_age=pending.max_age,
        moment=moment,
    )
    # The rules of other providers are about ID tokens.
    if client.reads_userinfo and client.rules == Rules.GENERIC:
        claims = {**claims, **_userinfo(client, metadata, tokens.access_token, claims)}
    return identity_of_claims(client, claims, user_form=dict(pairs).get("user", "")), tokens


def _github_identity(client: UpstreamClient, metadata: ProviderMetadata, access_token: str) -> UpstreamIdentity:
    user, addresses = (
        calls.get_json(address, authorities=client.authorities, access_token=access_token)
        for address in (metadata.userinfo_endpoint, f"{metadata.userinfo_endpoint}/emails")
    )
    return identity_of_github(user, addresses)


def _userinfo(
    client: UpstreamClient, metadata: ProviderMetadata, access_token: str, claims: Mapping[str, object]
) -> dict[str, object]:
    """Return the claims of the UserInfo endpoint that the ID token does not have (OpenID Connect Core section 5.3.4)."""
    if not metadata.userinfo_endpoint:
        return {}
    document = calls.get_json(metadata.userinfo_endpoint, authorities=client.authorities, access_token=access_token)
    if not isinstance(document, dict):
        raise UpstreamError(Reason.RESPONSE_INVALID, expected="a JSON object", received=type(document).__name__)
    # A token of another user could have been substituted.
    if document.get("sub") != claims["sub"]:
        raise UpstreamError(Reason.SUBJECT_MISMATCH, expected="the subject of the ID token")
    # An address is verified by the document that names it, not by the other one. How the user has signed in, only the ID
    # token says.
    present = claims.keys() | PROTOCOL_CLAIMS | {"email_verified"}
    verified = {} if "email" in claims else {"email_verified": document.get("email_verified")}
    return {name: value for name, value in document.items() if name not in present} | verified

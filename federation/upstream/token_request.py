"""Token requests to identity providers: exchange a code (RFC 6749 section 4.1.3), authenticated as the connection has it."""

import base64
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote_plus

from federation.upstream import calls
from federation.upstream.authorization import error_code
from federation.upstream.clients import AppleKey, AssertionKey, ClientSecret, UpstreamClient
from federation.upstream.discovery import ProviderMetadata
from federation.upstream.errors import Reason, UpstreamError
from userflow.sessions.upstream_assertions import AssertionKeyInvalid, apple_client_secret, client_assertion

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
LONGEST_TOKEN: Final = 32_768


@dataclass(frozen=True, slots=True)
class TokenResponse:
    """The tokens of a provider. They are dropped after the identity is read, unless the tenant keeps them."""

    access_token: str = field(repr=False)
    # Empty for providers without OpenID Connect.
    id_token: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)


def exchange_code(
    client: UpstreamClient, metadata: ProviderMetadata, *, code: str, redirect_uri: str, code_verifier: str
) -> TokenResponse:
    """Return the tokens for a code. Raises UpstreamError.

    The credential was entered for one token endpoint: if the provider's metadata names another one, nothing is sent, and an
    admin has to enter the credential again.
    """
    if metadata.token_endpoint != client.token_endpoint:
        raise UpstreamError(
            Reason.TOKEN_ENDPOINT_CHANGED, expected=client.token_endpoint, received=metadata.token_endpoint
        )
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": code_verifier,
    }
    credential_form, headers = _authentication(client, metadata)
    status, document = calls.post_form(
        metadata.token_endpoint, {**form, **credential_form}, authorities=client.authorities, headers=headers
    )
    if not isinstance(document, dict):
        raise UpstreamError(Reason.RESPONSE_INVALID, expected="a JSON object")
    # GitHub sends errors with 200. `error_description` is left out: it may repeat what was sent.
    if status != 200 or "error" in document:
        received = f"{status} {error_code(document.get('error'))}"
        raise UpstreamError(Reason.TOKEN_REQUEST_REJECTED, expected="200", received=received)
    return _read_tokens(document, has_id_token=bool(metadata.jwks_uri))


def _authentication(client: UpstreamClient, metadata: ProviderMetadata) -> tuple[dict[str, str], dict[str, str]]:
    """Return the fields and headers that authenticate the client. Raises UpstreamError."""
    match client.credential:
        case ClientSecret(secret=secret, in_body=True):
            return {"client_id": client.client_id, "client_secret": secret}, {}
        case ClientSecret(secret=secret):
            # RFC 6749 section 2.3.1: each part is encoded before they are joined.
            pair = f"{quote_plus(client.client_id)}:{quote_plus(secret)}"
            return {}, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        case AssertionKey() as key:
            return {"client_id": client.client_id, **_assertion(client, metadata, key)}, {}
        case AppleKey() as apple_key:
            return {"client_id": client.client_id, "client_secret": _apple_secret(client, apple_key)}, {}


def _assertion(client: UpstreamClient, metadata: ProviderMetadata, key: AssertionKey) -> dict[str, str]:
    # The issuer, if the provider takes it: an assertion for an endpoint that a document names could be meant for another
    # server (CVE-2025-27370).
    audience = metadata.token_endpoint if key.for_token_endpoint else client.discovery_issuer
    try:
        assertion = client_assertion(
            private=key.private,
            algorithm=key.algorithm,
            kid=key.kid,
            client_id=client.client_id,
            audience=audience,
            certificate_thumbprint=key.certificate_thumbprint,
        )
    except AssertionKeyInvalid as problem:
        raise UpstreamError(Reason.CREDENTIAL_INVALID, received=str(problem)) from problem
    return {"client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion}


def _apple_secret(client: UpstreamClient, key: AppleKey) -> str:
    try:
        return apple_client_secret(
            private=key.private, key_id=key.key_id, team_id=key.team_id, client_id=client.client_id
        )
    except AssertionKeyInvalid as problem:
        raise UpstreamError(Reason.CREDENTIAL_INVALID, received=str(problem)) from problem


def _read_tokens(document: dict[str, object], *, has_id_token: bool) -> TokenResponse:
    token_type = document.get("token_type")
    if not isinstance(token_type, str) or token_type.lower() != "bearer":
        raise UpstreamError(Reason.RESPONSE_INVALID, expected="token_type Bearer", received=type(token_type).__name__)
    tokens = {name: document.get(name) for name in ("access_token", "id_token", "refresh_token")}
    for name, token in tokens.items():
        required = name == "access_token" or (name == "id_token" and has_id_token)
        if token is None and not required:
            continue
        # A token becomes part of a header.
        if not (isinstance(token, str) and 0 < len(token) <= LONGEST_TOKEN and token.isascii() and token.isprintable()):
            raise UpstreamError(Reason.RESPONSE_INVALID, expected=name, received=type(token).__name__)
    return TokenResponse(**{name: str(token) for name, token in tokens.items() if token is not None})

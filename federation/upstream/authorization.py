"""Authorization requests to identity providers (OpenID Connect Core section 3.1.2.1, RFC 7636) and their callbacks."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from federation.upstream.clients import Rules, UpstreamClient
from federation.upstream.discovery import ProviderMetadata
from federation.upstream.errors import Reason, UpstreamError
from userflow.sessions.foreign_tokens import issuer_matches

# 256 bits each; a verifier has 43 to 128 characters (RFC 7636 section 4.1).
_RANDOM_BYTES: Final = 32
LONGEST_CODE: Final = 8192
# What providers show in place of a list of accounts; longer values would only lengthen the URL.
LONGEST_HINT: Final = 254
# Apple rejects scopes with `query`, and other scopes are of no use to it ("Request an authorization").
_APPLE_FORM_SCOPES: Final = frozenset({"name", "email"})
# The provider's own parameter by which a page for one organization is chosen. It restricts nothing: the claim is checked.
_ORGANIZATION_HINTS: Final = {Rules.GOOGLE: "hd", Rules.MICROSOFT: "domain_hint"}


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """Where the browser goes, and what the stored attempt needs for the callback."""

    # It contains the state.
    url: str = field(repr=False)
    nonce: str = field(repr=False)
    code_verifier: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request asks of the provider's sign-in page. Empty values are left out."""

    login_hint: str = ""
    # `login`, `select_account`, `consent` or `none`.
    prompt: str = ""
    max_age: int | None = None
    acr_values: str = ""
    organization_hint: str = ""


def new_authorization_request(
    client: UpstreamClient,
    metadata: ProviderMetadata,
    *,
    redirect_uri: str,
    state: str,
    prompt: Prompt | None = None,
) -> AuthorizationRequest:
    """Return a request for a code with state, nonce and PKCE (S256).

    `state` is the handle of the stored attempt: at least 256 bits that no other caller knows.
    """
    nonce, code_verifier = secrets.token_urlsafe(_RANDOM_BYTES), secrets.token_urlsafe(_RANDOM_BYTES)
    parameters = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "scope": " ".join(client.scopes),
        "state": state,
        "code_challenge": _s256(code_verifier),
        "code_challenge_method": "S256",
        **({} if client.rules == Rules.GITHUB else {"nonce": nonce}),
        **_prompt_parameters(client, prompt or Prompt()),
    }
    if client.rules == Rules.APPLE and _APPLE_FORM_SCOPES & set(client.scopes):
        parameters["response_mode"] = "form_post"
    return AuthorizationRequest(_with_query(metadata.authorization_endpoint, parameters), nonce, code_verifier)


def read_callback(
    client: UpstreamClient, metadata: ProviderMetadata, parameters: Iterable[tuple[str, str]], *, state: str
) -> str:
    """Return the code in the parameters of a callback, which belongs to the attempt with this state.

    The issuer is compared if the callback names one, and must be there if the provider says that it always is (RFC 9207
    section 2.4), also in errors. Raises UpstreamError.
    """
    received: dict[str, str] = {}
    for name, value in parameters:
        # RFC 6749 section 3.1. Of two values, this check and a later reader could take different ones.
        if name in received:
            raise UpstreamError(Reason.CALLBACK_INVALID, expected="each parameter once", received=name)
        received[name] = value
    if not state or not hmac.compare_digest(_bytes(received.get("state", "")), _bytes(state)):
        raise UpstreamError(Reason.STATE_MISMATCH, expected="the state of the request")
    issuer = received.get("iss")
    if (issuer is None and metadata.names_issuer_in_callback) or (
        issuer is not None and not issuer_matches(client.issuer, issuer)
    ):
        raise UpstreamError(Reason.CALLBACK_ISSUER_MISMATCH, expected=client.issuer, received=issuer or "nothing")
    if "error" in received:
        code = error_code(received["error"])
        reason = Reason.ACCESS_DENIED if code in _DENIED else Reason.PROVIDER_ERROR
        raise UpstreamError(reason, expected="a code", received=code)
    code = received.get("code", "")
    if not 0 < len(code) <= LONGEST_CODE:
        raise UpstreamError(Reason.CALLBACK_INVALID, expected="a code", received=f"{len(code)} characters")
    return code


# The user has declined: RFC 6749 section 4.1.2.1, and Apple's own value.
_DENIED: Final = frozenset({"access_denied", "user_cancelled_authorize"})


def error_code(value: object) -> str:
    """Return an error code of a provider for the log: codes are short names, and any other text could contain a secret."""
    is_code = isinstance(value, str) and 0 < len(value) <= 64 and value.isascii() and value.replace("_", "").isalnum()
    return str(value) if is_code else "an invalid error code"


def _prompt_parameters(client: UpstreamClient, prompt: Prompt) -> dict[str, str]:
    if client.rules == Rules.GITHUB:
        # GitHub has parameters of its own ("Authorizing OAuth apps").
        return {"login": prompt.login_hint[:LONGEST_HINT]} if prompt.login_hint else {}
    hints = {
        "login_hint": prompt.login_hint[:LONGEST_HINT],
        "prompt": prompt.prompt,
        "max_age": "" if prompt.max_age is None else str(prompt.max_age),
        "acr_values": prompt.acr_values,
        _ORGANIZATION_HINTS.get(client.rules, ""): prompt.organization_hint,
    }
    return {name: value for name, value in hints.items() if name and value}


def _with_query(address: str, parameters: dict[str, str]) -> str:
    """Return the endpoint with parameters. It may have a query (RFC 6749 section 3.1), but none of these parameters."""
    parts = urlsplit(address)
    kept_query = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] not in parameters]
    return urlunsplit(parts._replace(query=urlencode([*kept_query, *parameters.items()])))


def _s256(code_verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(code_verifier.encode()).digest()).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

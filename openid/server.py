"""The protocol server on Authlib: grants, response types and PKCE.

Authlib checks the messages, the platform stores: the subclasses below connect both. Only this module and `openid.clients`
import Authlib. What it does not do is done before it is called: repeated parameters, characters that its messages do not
allow, client authentication with its limits, and a code that is consumed by one statement.
"""

import re
from dataclasses import dataclass
from typing import Any, Protocol

from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import AuthorizationServer, InvalidGrantError, InvalidRequestError, OAuth2Request
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc7636 import CodeChallenge

from identity_platform.api.errors import OAuthError
from openid.clients import ProtocolClient
from openid.errors import RequestRejected
from openid.models import AuthorizationCode
from userflow.accounts.grant_types import AUTHORIZATION_CODE
from userflow.accounts.models import TenantClient
from userflow.oauth_errors import InvalidGrant, InvalidRequest, UnauthorizedClient
from userflow.sessions.client_authentication import KnownClient

_ERRORS = {error.code: error for error in (InvalidGrant, InvalidRequest, UnauthorizedClient)}
# BASE64URL(SHA256(…)) without padding (RFC 7636 section 4.2).
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")


class _Request(OAuth2Request):  # type: ignore[misc]  # Authlib is not typed
    """A request with parameters that were sent once each."""

    def __init__(self, method: str, parameters: dict[str, str]) -> None:
        # Authlib rejects plain http by a variable of its own; whether it is allowed is this platform's setting.
        super().__init__(method, "https://checked.invalid/")
        self.payload = BasicOAuth2Payload(parameters)

    @property
    def form(self) -> dict[str, str]:
        data: dict[str, str] = self.payload.data
        return data


class _S256(CodeChallenge):  # type: ignore[misc]  # Authlib is not typed
    """PKCE with S256 only, required unless a confidential client is registered without (RFC 9700 section 2.1.1).

    Authlib's default method is `plain`.
    """

    DEFAULT_CODE_CHALLENGE_METHOD = "S256"
    SUPPORTED_CODE_CHALLENGE_METHOD = ("S256",)

    def validate_code_challenge(self, grant: Any, redirect_uri: str) -> None:
        data = grant.request.payload.data
        is_sent = bool({"code_challenge", "code_challenge_method"} & data.keys())
        if not is_sent and not grant.server.client.requires_pkce:
            return
        if not _CHALLENGE.fullmatch(data.get("code_challenge", "")) or data.get("code_challenge_method") != "S256":
            raise InvalidRequestError("PKCE is required: send code_challenge with code_challenge_method=S256.")
        super().validate_code_challenge(grant, redirect_uri)

    def validate_code_verifier(self, grant: Any, result: object) -> None:
        """Compare the verifier. A missing one, and one without a challenge, are as wrong as another's.

        RFC 7636 section 4.6, RFC 9700 section 4.8.2. Raises InvalidGrantError.
        """
        try:
            super().validate_code_verifier(grant, result)
        except InvalidRequestError as problem:
            raise InvalidGrantError(problem.description) from None

    def get_authorization_code_challenge_method(self, authorization_code: object) -> str:
        return "S256"


class CodeExchange(Protocol):
    """What the code grant calls to use a code and to issue its tokens."""

    def use_code(self, code: str) -> AuthorizationCode | None:
        """Return the code if its client may use it now."""

    def issue_tokens(self, code: AuthorizationCode) -> dict[str, object]:
        """Return the response."""


@dataclass(frozen=True, slots=True)
class _CodeInHand:
    """A stored code in the form that Authlib asks for."""

    row: AuthorizationCode

    @property
    def code_challenge(self) -> str:
        return self.row.code_challenge

    def get_redirect_uri(self) -> str:
        return self.row.redirect_uri

    def get_scope(self) -> str:
        return ""


class _CodeGrant(AuthorizationCodeGrant):  # type: ignore[misc]  # Authlib is not typed
    """The code flow (RFC 6749 section 4.1)."""

    def authenticate_token_endpoint_client(self) -> ProtocolClient:
        client: ProtocolClient = self.server.client
        return client

    def query_authorization_code(self, code: str, client: ProtocolClient) -> _CodeInHand | None:
        row = self.server.exchange.use_code(code)
        return None if row is None else _CodeInHand(row)

    def authenticate_user(self, authorization_code: _CodeInHand) -> _CodeInHand:
        # Whether the user and the session are active is checked when the tokens are issued.
        return authorization_code

    def generate_token(self, user: _CodeInHand, scope: str, include_refresh_token: bool) -> dict[str, object]:
        response: dict[str, object] = self.server.exchange.issue_tokens(user.row)
        return response

    def save_token(self, token: dict[str, object]) -> None:
        """Do nothing: the tokens are stored when they are issued."""

    def delete_authorization_code(self, authorization_code: _CodeInHand) -> None:
        """Do nothing: the code was used up when it was read."""


class TenantServer(AuthorizationServer):  # type: ignore[misc]  # Authlib is not typed
    """The server for one request of a client that is known already."""

    def __init__(self, client: TenantClient | KnownClient, exchange: CodeExchange | None = None) -> None:
        super().__init__()
        self.client = ProtocolClient(client)
        self.exchange = exchange
        self.register_grant(_CodeGrant, [_S256(required=False)])

    def query_client(self, client_id: str) -> ProtocolClient:
        return self.client

    def create_oauth2_request(self, request: _Request) -> _Request:
        return request

    def handle_response(self, status: int, body: dict[str, object], headers: object) -> tuple[int, dict[str, object]]:
        return status, dict(body)

    def send_signal(self, name: str, *args: object, **kwargs: object) -> None:
        """Send none."""


def check_authorization_request(client: TenantClient, parameters: dict[str, str]) -> None:
    """Check response type, grant type and code challenge of a request to the authorization endpoint. Raises RequestRejected."""
    try:
        TenantServer(client).get_consent_grant(_Request("GET", parameters))
    except OAuth2Error as problem:
        raise RequestRejected(problem.error, problem.description) from None


def run_code_grant(
    client: KnownClient, parameters: dict[str, str], exchange: CodeExchange
) -> dict[str, object] | OAuthError:
    """Return the response to a token request with a code, or the error: invalid_grant, invalid_request, unauthorized_client.

    The error is returned, so that a transaction around the call commits what was written with it.
    """
    request = _Request("POST", {**parameters, "grant_type": AUTHORIZATION_CODE})
    request.client, request.auth_method = ProtocolClient(client), "none"
    try:
        status, body = TenantServer(client, exchange).create_token_response(request)
    except OAuthError as problem:
        return problem
    return body if status == 200 else _ERRORS[str(body["error"])](str(body.get("error_description", "")) or None)

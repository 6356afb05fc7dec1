"""The protocol server on Authlib: grants, response types and PKCE.

Authlib checks the messages, the platform stores: the subclasses below connect both. Only this module and `openid.clients`
import Authlib. What it does not do is done before it is called: repeated parameters, characters that its messages do not
allow, client authentication with its limits, and a code that is consumed by one statement.
"""

import re
from typing import Any

from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import AuthorizationServer, InvalidRequestError, OAuth2Request
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc6749.requests import OAuth2Payload
from authlib.oauth2.rfc7636 import CodeChallenge

from openid.clients import ProtocolClient
from openid.errors import RequestRejected
from userflow.accounts.models import Client

# BASE64URL(SHA256(…)) without padding (RFC 7636 section 4.2).
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")


class _Payload(OAuth2Payload):  # type: ignore[misc]  # Authlib is not typed
    """Parameters that were sent once each."""

    def __init__(self, parameters: dict[str, str]) -> None:
        self._parameters = parameters

    @property
    def data(self) -> dict[str, str]:
        return self._parameters

    @property
    def datalist(self) -> dict[str, list[str]]:
        return {name: [value] for name, value in self._parameters.items()}


class _Request(OAuth2Request):  # type: ignore[misc]  # Authlib is not typed
    """A request as Authlib reads it.

    Authlib would reject plain http by a variable of its own; whether it is allowed is this platform's setting.
    """

    def __init__(self, method: str, parameters: dict[str, str]) -> None:
        self.method = method
        self.headers: dict[str, str] = {}
        self.payload = _Payload(parameters)
        self.client = self.auth_method = self.user = None
        self.authorization_code = self.refresh_token = self.credential = None
        self._scope = None
        self._parameters = parameters

    @property
    def form(self) -> dict[str, str]:
        return self._parameters


class _S256(CodeChallenge):  # type: ignore[misc]  # Authlib is not typed
    """PKCE, required of every client and with S256 only (RFC 9700 section 2.1.1). Authlib's default method is `plain`."""

    DEFAULT_CODE_CHALLENGE_METHOD = "S256"
    SUPPORTED_CODE_CHALLENGE_METHOD = ("S256",)

    def validate_code_challenge(self, grant: Any, redirect_uri: str) -> None:
        data = grant.request.payload.data
        if not _CHALLENGE.fullmatch(data.get("code_challenge", "")) or data.get("code_challenge_method") != "S256":
            raise InvalidRequestError("PKCE is required: send code_challenge with code_challenge_method=S256.")
        super().validate_code_challenge(grant, redirect_uri)

    def get_authorization_code_challenge_method(self, authorization_code: object) -> str:
        return "S256"


class _CodeGrant(AuthorizationCodeGrant):  # type: ignore[misc]  # Authlib is not typed
    """The code flow (RFC 6749 section 4.1)."""


class TenantServer(AuthorizationServer):  # type: ignore[misc]  # Authlib is not typed
    """The server for one request of a client that is known already."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = ProtocolClient(client)
        self.register_grant(_CodeGrant, [_S256(required=True)])

    def query_client(self, client_id: str) -> ProtocolClient:
        return self._client

    def create_oauth2_request(self, request: _Request) -> _Request:
        return request

    def send_signal(self, name: str, *args: object, **kwargs: object) -> None:
        """Send none."""


def check_authorization_request(client: Client, parameters: dict[str, str]) -> None:
    """Check response type, grant type and code challenge of a request to the authorization endpoint. Raises RequestRejected."""
    try:
        TenantServer(client).get_consent_grant(_Request("GET", parameters))
    except OAuth2Error as problem:
        raise RequestRejected(problem.error, problem.description) from None

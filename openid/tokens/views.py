"""The token endpoint of a tenant (RFC 6749 section 3.2)."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.fields import Text
from identity_platform.api.views import endpoint
from openid.authorization.parameters import granted_audiences
from openid.client_authentication import CLIENT_ERRORS, ClientEndpoint, authenticate_at
from openid.errors import (
    AccessDenied,
    AuthorizationPending,
    DeviceCodeExpired,
    RequestRejected,
    SlowDown,
    UnsupportedGrantType,
)
from openid.tokens.codes import exchange_code
from openid.tokens.devices import exchange_device_code
from openid.tokens.refreshing import refresh
from userflow.accounts import grant_types
from userflow.oauth_errors import (
    DpopNonceRequired,
    DpopProofInvalid,
    InvalidGrant,
    InvalidRequest,
    InvalidScope,
    InvalidTarget,
    UnauthorizedClient,
)
from userflow.sessions.client_authentication import KnownClient
from userflow.sessions.sender_constraint import presented_binding
from userflow.sessions.serializers import ClientProof
from userflow.sessions.token_actions import issue_client_token
from userflow.sessions.views import BASIC_HEADER, NO_STORE


class OpenIDTokenIn(ClientProof):
    """RFC 6749 sections 4.1.3, 4.4.2 and 6, RFC 7636 section 4.5, RFC 8628 section 3.4, RFC 8707 section 2.2."""

    grant_type = Text(max_length=64, help_text="One of `grant_types_supported` of the issuer's metadata.")
    code = Text(max_length=4096, required=False, help_text="Authorization code, for the grant authorization_code.")
    redirect_uri = Text(max_length=2048, required=False, help_text="That of the authorization request.")
    code_verifier = Text(max_length=128, required=False, help_text="The secret of code_challenge (PKCE).")
    refresh_token = Text(max_length=4096, required=False, help_text="For the grant refresh_token.")
    device_code = Text(max_length=4096, required=False, help_text="That of the device authorization response.")
    scope = Text(max_length=4096, required=False, help_text="Separated by blanks; no more than was granted.")
    resource = serializers.ListField(
        child=Text(max_length=2048), required=False, help_text="Audiences of the access token; may be repeated."
    )


class OpenIDTokenOut(serializers.Serializer[object]):
    """RFC 6749 section 5.1, OpenID Connect Core section 3.1.3.3."""

    access_token = serializers.CharField()
    token_type = serializers.CharField(
        help_text="Bearer, or DPoP for tokens that are bound to a key by DPoP (RFC 9449)."
    )
    expires_in = serializers.IntegerField()
    refresh_token = serializers.CharField(
        required=False, help_text="For new tokens; with the grant refresh_token, the one to use from then on."
    )
    id_token = serializers.CharField(
        required=False, help_text="With the scope `openid`; at a refresh with the same claims about the user."
    )
    scope = serializers.CharField(required=False, help_text="Granted scopes, separated by spaces.")


class OpenIDTokenViewSet(ClientEndpoint):
    @endpoint(
        OpenIDTokenIn,
        id="requestOpenidToken",
        returns={200: OpenIDTokenOut},
        errors=[
            *CLIENT_ERRORS,
            InvalidGrant,
            InvalidScope,
            InvalidTarget,
            UnauthorizedClient,
            UnsupportedGrantType,
            AuthorizationPending,
            SlowDown,
            AccessDenied,
            DeviceCodeExpired,
            DpopProofInvalid,
            DpopNonceRequired,
        ],
        token="none",
        headers={**BASIC_HEADER, "DPoP": "A proof of possession that binds the tokens to its key (RFC 9449)."},
    )
    def token(self, request: Request, slug: str) -> Response:
        """Get tokens from a tenant's issuer.

        RFC 6749 sections 4.1.3, 4.4 and 6. A code needs its `redirect_uri` and the `code_verifier` of its challenge
        (PKCE); its second use ends the session that the first one opened. A device polls until the user has decided
        (RFC 8628 section 3.4). With a DPoP proof the tokens are bound to its key; those of a client with
        `tls_client_certificate_bound_access_tokens` to the certificate of the connection (RFC 8705).
        """
        client, sent = authenticate_at(self, OpenIDTokenIn)
        grant_type = sent["grant_type"]
        if grant_type not in grant_types.GRANT_TYPES:
            raise UnsupportedGrantType
        if not grant_types.may_use(client, grant_type):
            raise UnauthorizedClient("The client is not registered for this grant type.")
        binding = presented_binding(request, client)
        # Before a code is used up.
        client.check_binding(binding)
        return Response(self._tokens(client, sent, binding), headers=NO_STORE)

    def _tokens(self, client: KnownClient, sent: Mapping[str, Any], binding: str) -> dict[str, object]:
        tenant = client.tenant
        resources = sent.get("resource", [])
        match sent["grant_type"]:
            case grant_types.AUTHORIZATION_CODE:
                names = ("code", "redirect_uri", "code_verifier")
                return exchange_code(
                    tenant=tenant,
                    client=client,
                    parameters={name: sent[name] for name in names if name in sent},
                    resources=resources,
                    binding=binding,
                )
            case grant_types.DEVICE_CODE:
                if "device_code" not in sent:
                    raise InvalidRequest("device_code is missing.")
                return exchange_device_code(
                    tenant=tenant,
                    client=client,
                    device_code=sent["device_code"],
                    resources=resources,
                    binding=binding,
                )
            case grant_types.REFRESH_TOKEN:
                return refresh(tenant=tenant, client=client, sent=sent, binding=binding)
            case grant_types.CLIENT_CREDENTIALS:
                return issue_client_token(
                    client=client,
                    scope=sent.get("scope"),
                    audiences=self._audiences(client, resources),
                    binding=binding,
                )
        raise UnsupportedGrantType

    def _audiences(self, client: KnownClient, resources: list[str]) -> tuple[str, ...]:
        try:
            return granted_audiences(resources, client.audiences)
        except RequestRejected as problem:
            raise InvalidTarget from problem

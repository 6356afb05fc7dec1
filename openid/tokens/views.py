"""The token endpoint of a tenant (RFC 6749 section 3.2)."""

from collections.abc import Mapping
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import TooManyRequests
from identity_platform.api.parsers import OAuthFormParser
from identity_platform.api.views import ApiViewSet, endpoint
from openid.authorization.parameters import granted_audiences
from openid.client_authentication import authenticate_at
from openid.dpop import check_proof
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
from openid.tokens.serializers import OpenIDTokenIn, OpenIDTokenOut
from tenants.errors import TenantBusy, UnknownTenant
from userflow.accounts import grant_types
from userflow.oauth_errors import (
    DpopNonceRequired,
    DpopProofInvalid,
    InvalidClient,
    InvalidGrant,
    InvalidRequest,
    InvalidScope,
    InvalidTarget,
    UnauthorizedClient,
)
from userflow.sessions.client_authentication import KnownClient
from userflow.sessions.permissions import Anyone
from userflow.sessions.token_actions import issue_client_token
from userflow.sessions.views import BASIC_HEADER, NO_STORE


class OpenIDTokenViewSet(ApiViewSet):
    permission_classes = [Anyone]
    authentication_classes = []
    parser_classes = [OAuthFormParser]

    @endpoint(
        OpenIDTokenIn,
        returns={200: OpenIDTokenOut},
        errors=[
            InvalidRequest,
            InvalidClient,
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
            UnknownTenant,
            TenantBusy,
            TooManyRequests,
        ],
        token="none",
        headers={**BASIC_HEADER, "DPoP": "A proof of possession that binds the tokens to its key (RFC 9449)."},
    )
    def token(self, request: Request, slug: str) -> Response:
        """Get tokens for a code, a device, a refresh token, or the client itself (RFC 6749 sections 4.1.3, 4.4 and 6).

        The code needs the `redirect_uri` of its authorization request and the `code_verifier` of its challenge (PKCE). Its
        second use ends the session that the first one has opened. A device polls with its `device_code` until the user has
        decided (RFC 8628 section 3.4). With a DPoP proof the tokens are bound to its key.
        """
        client, sent = authenticate_at(self, OpenIDTokenIn)
        grant_type = sent["grant_type"]
        if grant_type not in grant_types.GRANT_TYPES:
            raise UnsupportedGrantType
        if not grant_types.may_use(client, grant_type):
            raise UnauthorizedClient("The client is not registered for this grant type.")
        jkt = check_proof(request) or ""
        # Before a code is used up.
        client.check_dpop(jkt)
        return Response(self._tokens(client, sent, jkt), headers=NO_STORE)

    def _tokens(self, client: KnownClient, sent: Mapping[str, Any], jkt: str) -> dict[str, object]:
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
                    dpop_jkt=jkt,
                )
            case grant_types.DEVICE_CODE:
                if "device_code" not in sent:
                    raise InvalidRequest("device_code is missing.")
                return exchange_device_code(
                    tenant=tenant,
                    client=client,
                    device_code=sent["device_code"],
                    resources=resources,
                    dpop_jkt=jkt,
                )
            case grant_types.REFRESH_TOKEN:
                return refresh(tenant=tenant, client=client, sent=sent, dpop_jkt=jkt)
            case grant_types.CLIENT_CREDENTIALS:
                return issue_client_token(
                    client=client,
                    scope=sent.get("scope"),
                    audiences=self._audiences(client, resources),
                    dpop_jkt=jkt,
                )
        raise UnsupportedGrantType

    def _audiences(self, client: KnownClient, resources: list[str]) -> tuple[str, ...]:
        try:
            return granted_audiences(resources, client.audiences)
        except RequestRejected as problem:
            raise InvalidTarget from problem

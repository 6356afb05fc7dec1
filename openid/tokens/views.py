"""The token endpoint of a tenant (RFC 6749 section 3.2)."""

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import TooManyRequests
from identity_platform.api.parsers import OAuthFormParser
from identity_platform.api.views import ApiViewSet, endpoint
from openid.authorization.parameters import granted_audiences
from openid.client_authentication import AuthenticatedClient, authenticate_at
from openid.clients import may_use
from openid.dpop import check_proof
from openid.errors import RequestRejected, UnsupportedGrantType
from openid.tenant_of_request import tenant_of_request
from openid.tokens.codes import exchange_code
from openid.tokens.refreshing import refresh
from openid.tokens.serializers import OpenIDTokenIn, OpenIDTokenOut
from tenants.errors import TenantBusy, UnknownTenant
from userflow.accounts.grant_types import GRANT_TYPES
from userflow.errors import (
    DpopNonceRequired,
    DpopProofInvalid,
    InvalidClient,
    InvalidGrant,
    InvalidRequest,
    InvalidScope,
    InvalidTarget,
    UnauthorizedClient,
)
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
        """Get tokens for an authorization code, a refresh token, or the client itself (RFC 6749 sections 4.1.3, 4.4 and 6).

        The code needs the `redirect_uri` of its authorization request and the `code_verifier` of its challenge (PKCE). Its
        second use ends the session that the first one has opened. With a DPoP proof the tokens are bound to its key.
        """
        tenant = tenant_of_request(request._request)
        sent = self.valid(OpenIDTokenIn)
        client = authenticate_at(request, sent, tenant)
        grant_type = sent["grant_type"]
        if grant_type not in GRANT_TYPES:
            raise UnsupportedGrantType
        if not may_use(client.row, grant_type):
            raise UnauthorizedClient("The client is not registered for this grant type.")
        jkt = check_proof(request) or ""
        # Before a code is used up.
        client.known.check_dpop(jkt)
        response: dict[str, object]
        match grant_type:
            case "authorization_code":
                names = ("code", "redirect_uri", "code_verifier")
                parameters = {name: sent[name] for name in names if name in sent}
                response = exchange_code(
                    tenant=tenant,
                    client=client.row,
                    parameters=parameters,
                    resources=sent.get("resource", []),
                    dpop_jkt=jkt,
                )
            case "refresh_token":
                response = refresh(tenant=tenant, client=client, sent=sent, dpop_jkt=jkt)
            case "client_credentials":
                response = issue_client_token(
                    client=client.known,
                    scope=sent.get("scope"),
                    audiences=self._audiences(client, sent.get("resource", [])),
                    dpop_jkt=jkt,
                )
            case _:
                raise UnsupportedGrantType
        return Response(response, headers=NO_STORE)

    def _audiences(self, client: AuthenticatedClient, resources: list[str]) -> tuple[str, ...]:
        try:
            return granted_audiences(resources, client.row)
        except RequestRejected as problem:
            raise InvalidTarget from problem

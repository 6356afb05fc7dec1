"""Introspection and revocation at a tenant's issuer (RFC 7662, RFC 7009), for the tenant's clients."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.parsers import StrictFormParser
from identity_platform.api.views import Arguments, endpoint
from openid.client_authentication import CLIENT_ERRORS, ClientEndpoint, authenticate_at
from userflow.oauth_errors import InvalidClient, UnauthorizedClient
from userflow.sessions.client_authentication import StoredClient
from userflow.sessions.serializers import IntrospectionOut, PresentedToken, RevokedOut
from userflow.sessions.token_actions import TokenOfClient, introspect_token, revoke_token
from userflow.sessions.views import BASIC_HEADER, NO_STORE


class TokenStateViewSet(ClientEndpoint):
    parser_classes = [StrictFormParser]

    @endpoint(
        PresentedToken,
        id="introspectOpenidToken",
        returns={200: IntrospectionOut},
        errors=CLIENT_ERRORS,
        token="none",
        headers=BASIC_HEADER,
    )
    def introspect(self, request: Request, slug: str) -> Response:
        """Get the state of a tenant's token.

        RFC 7662, for confidential clients of the tenant. For every other token the response is `active: false`.
        """
        token = TokenOfClient()

        def read_client(sent: Arguments, client_id: UUID) -> StoredClient | None:
            return token.read_client(sent["token"], client_id)

        client, sent = authenticate_at(self, PresentedToken, read_client)
        # A public client is not authenticated: anyone could try tokens (RFC 7662 section 2.1).
        if not client.confidential:
            raise InvalidClient
        return Response(introspect_token(token=sent["token"], by=client, stored=token.stored), headers=NO_STORE)

    @endpoint(
        PresentedToken,
        id="revokeOpenidToken",
        returns={200: RevokedOut},
        errors=[*CLIENT_ERRORS, UnauthorizedClient],
        token="none",
        headers=BASIC_HEADER,
    )
    def revoke(self, request: Request, slug: str) -> Response:
        """Revoke a tenant's token.

        RFC 7009. A user's token ends the session of the application. An unknown token returns 200 as well.
        """
        client, sent = authenticate_at(self, PresentedToken)
        revoke_token(token=sent["token"], client=client)
        return Response({}, headers=NO_STORE)

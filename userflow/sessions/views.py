"""The OAuth 2.0 endpoints (RFC 6749, 7009, 7662), the public keys (RFC 7517) and what describes them (RFC 8414)."""

from collections.abc import Mapping
from functools import partial

from django.conf import settings
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import TooManyRequests
from identity_platform.api.parsers import StrictFormParser, StrictJSONParser
from identity_platform.api.views import endpoint
from userflow.accounts.principals import Principal
from userflow.oauth_errors import (
    DpopProofInvalid,
    InvalidClient,
    InvalidGrant,
    InvalidRequest,
    InvalidScope,
    InvalidTarget,
    UnauthorizedClient,
    UnsupportedGrant,
)
from userflow.sessions import client_assertions, serializers, signing
from userflow.sessions import token_actions as actions
from userflow.sessions.authentication import BearerAuthentication
from userflow.sessions.client_authentication import (
    BASIC,
    CERTIFICATE,
    POST,
    PRIVATE_KEY_JWT,
    Credential,
    KnownClient,
    authenticate_client,
    basic_credentials,
)
from userflow.sessions.client_certificates import presented_certificate
from userflow.sessions.metadata import metadata_of
from userflow.sessions.refresh import refresh_session
from userflow.sessions.view_sets import PublicViewSet

TOKEN_ENDPOINT = "/authmgr/token"
NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}  # RFC 6749 section 5.1
PUBLIC = {"Cache-Control": "public, max-age=300"}
BASIC_HEADER = {"Authorization": "`Basic`: client id and secret, each form-encoded (RFC 6749 section 2.3.1)."}
BASIC_OR_BEARER = {"Authorization": "`Basic` of a client, or `Bearer` of an admin or a client of the token's tenant."}


def stated_client(request: Request, body: Mapping[str, object]) -> tuple[str | None, Credential | None]:
    """Return client id and credential of the call, from HTTP Basic, the body or the connection; None if there is none.

    Raises InvalidClient (a header of another form, an assertion of another type), InvalidRequest (two ways at once, RFC
    6749 section 2.3).
    """
    header: str | None = request.META.get("HTTP_AUTHORIZATION")
    client_id, secret, assertion = (
        None if body.get(name) is None else str(body[name])
        for name in ("client_id", "client_secret", "client_assertion")
    )
    if (header is not None) + (secret is not None) + (assertion is not None) > 1:
        raise InvalidRequest(
            "Authenticate the client in one way only: by HTTP Basic, client_secret or client_assertion."
        )
    if assertion is not None:
        if body.get("client_assertion_type") != client_assertions.TYPE:
            raise InvalidClient
        # Only here: an assertion for the platform's endpoint does not work at a tenant's.
        endpoint = TOKEN_ENDPOINT if request.path.startswith(TOKEN_ENDPOINT) else ""
        credential = Credential(PRIVATE_KEY_JWT, assertion, f"{settings.BASE_URL}{endpoint}" if endpoint else "")
        return client_id or client_assertions.subject_of_assertion(assertion), credential
    if header is None:
        if secret is not None and client_id is None:
            raise InvalidRequest("client_secret needs client_id.")
        if secret is not None:
            return client_id, Credential(POST, secret)
        certificate = presented_certificate(request) if client_id is not None else None
        return client_id, None if certificate is None else Credential(CERTIFICATE, certificate=certificate)
    name_and_secret = basic_credentials(header)
    if name_and_secret is None:
        raise InvalidClient
    name, key = name_and_secret
    if client_id not in (None, name):
        raise InvalidRequest("HTTP Basic and client_id name different clients.")
    # A public client that sends its id by Basic has an empty password there.
    return name, Credential(BASIC, key) if key else None


class TokenViewSet(PublicViewSet):
    parser_classes = [StrictFormParser, StrictJSONParser]

    @endpoint(
        serializers.TokenIn,
        id="requestToken",
        returns={200: serializers.TokenOut},
        errors=[
            InvalidRequest,
            InvalidClient,
            InvalidGrant,
            InvalidScope,
            UnauthorizedClient,
            InvalidTarget,
            DpopProofInvalid,
            UnsupportedGrant,
            TooManyRequests,
        ],
        token="none",
        headers=BASIC_HEADER,
    )
    def token(self, request: Request) -> Response:
        """Get a token for a client, or refresh the tokens of a session.

        RFC 6749 sections 4.4 and 6. Keep the refresh token of each response. Where it is a new one (`refresh_token_rotation` of
        the client), use each once: a second use within `REFRESH_OVERLAP_SECONDS` (10) returns the same one; a later one ends
        the session.
        """
        fields = self.valid(serializers.TokenIn)
        client_id, credential = stated_client(request, fields)
        match fields["grant_type"]:
            case "client_credentials":
                if client_id is None:
                    raise InvalidClient
                client = authenticate_client(client_id=client_id, credential=credential)
                return Response(actions.issue_client_token(client=client, scope=fields.get("scope")), headers=NO_STORE)
            case "refresh_token":
                if "refresh_token" not in fields:
                    raise InvalidRequest("refresh_token is missing.")
                requested = tuple(str(fields["scope"]).split()) if "scope" in fields else None
                pair = refresh_session(
                    refresh_token=fields["refresh_token"], client_id=client_id, credential=credential, scopes=requested
                )
                # The scope of a session of the API is not narrowed; RFC 6749 section 3.3 then requires it in the response.
                scope = actions.granted_scope(pair) if "scope" in fields and pair.scope is None else ""
                return Response({**pair.fields(), **({"scope": scope} if scope else {})}, headers=NO_STORE)
            case _:
                raise UnsupportedGrant

    @endpoint(
        serializers.PresentedToken,
        id="revokeToken",
        returns={200: serializers.RevokedOut},
        errors=[InvalidRequest, InvalidClient, UnauthorizedClient, TooManyRequests],
        token="none",
        headers=BASIC_HEADER,
    )
    def revoke(self, request: Request) -> Response:
        """Revoke a token.

        RFC 7009. A refresh token or access token of a user ends the whole session. An unknown token returns 200 as
        well.
        """
        fields = self.valid(serializers.PresentedToken)
        client_id, credential = stated_client(request, fields)
        actions.revoke_token(token=fields["token"], client_id=client_id, credential=credential)
        return Response({}, headers=NO_STORE)

    @endpoint(
        serializers.PresentedToken,
        id="introspectToken",
        returns={200: serializers.IntrospectionOut},
        errors=[InvalidRequest, InvalidClient, TooManyRequests],
        token="optional",
        headers=BASIC_OR_BEARER,
    )
    def introspect(self, request: Request) -> Response:
        """Get the state of a token.

        RFC 7662, for confidential clients and admins of the token's tenant. For every other token the response is
        `active: false`.
        """
        fields = self.valid(serializers.PresentedToken)
        token = actions.TokenOfClient()
        caller = self._caller(request, fields, token)
        known = actions.introspect_token(token=fields["token"], by=caller, stored=token.stored)
        return Response(known, headers=NO_STORE)

    def _caller(
        self, request: Request, fields: Mapping[str, object], token: actions.TokenOfClient
    ) -> KnownClient | Principal:
        header = request.META.get("HTTP_AUTHORIZATION", "")
        if header.partition(" ")[0].lower() in ("bearer", "dpop"):
            signed_in = BearerAuthentication().authenticate(request)
            if signed_in is not None:
                return signed_in[0]
        client_id, credential = stated_client(request, fields)
        if client_id is None or credential is None:
            raise InvalidClient
        client = authenticate_client(
            client_id=client_id, credential=credential, read=partial(token.read_client, str(fields["token"]))
        )
        # A public client is not authenticated: anyone could try tokens (RFC 7662 section 2.1).
        if not client.confidential:
            raise InvalidClient
        return client


class WellKnownViewSet(PublicViewSet):
    """The documents that verifiers and OAuth client libraries look up."""

    @endpoint(id="getJwks", returns={200: serializers.JwksOut}, token="none")
    def jwks(self, request: Request) -> Response:
        """Get the keys of operators' and tenant admins' tokens.

        Return the current and still valid keys (RFC 7517), which can be cached. The keys of a tenant's own tokens are
        at `/t/{slug}/jwks`.
        """
        signing.signer()
        return Response({"keys": signing.key_set().jwks}, headers=PUBLIC)

    @endpoint(id="getServerMetadata", returns={200: serializers.ServerMetadataOut}, token="none")
    def metadata(self, request: Request) -> Response:
        """Get the metadata of the platform's OAuth endpoints.

        RFC 8414. It describes `/authmgr/token*`. A tenant's OpenID Connect metadata is below `/t/{slug}`.
        """
        return Response(
            metadata_of(settings.TOKEN_ISSUER, jwks_uri=f"{settings.BASE_URL}/.well-known/jwks.json"), headers=PUBLIC
        )

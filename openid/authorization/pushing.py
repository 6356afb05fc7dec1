"""The endpoint for pushed authorization requests (RFC 9126)."""

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.fields import Text
from identity_platform.api.views import endpoint
from openid.authorization.parameters import LONGEST, Sent
from openid.authorization.requests import PUSHED_SECONDS, push_request
from openid.client_authentication import CLIENT_ERRORS, ClientEndpoint, authenticate_at
from openid.errors import PushedRequestRejected, RequestRejected
from tenants.errors import TenantSuspended
from userflow.credentials import attempts
from userflow.oauth_errors import DpopNonceRequired, DpopProofInvalid
from userflow.sessions.request_objects import LONGEST as LONGEST_REQUEST_OBJECT
from userflow.sessions.sender_constraint import presented_binding
from userflow.sessions.serializers import ClientProof
from userflow.sessions.views import BASIC_HEADER, NO_STORE


class PushedAuthorizationIn(ClientProof):
    """The parameters of an authorization request (OpenID Connect Core section 3.1.2.1) and the client's authentication."""

    response_type = Text(max_length=64, required=False, help_text="Required: code")
    response_mode = Text(
        max_length=64, required=False, help_text="query (default), form_post, or signed: jwt, query.jwt, form_post.jwt"
    )
    request = Text(
        max_length=LONGEST_REQUEST_OBJECT,
        required=False,
        help_text="All parameters as a JWT that the client has signed (RFC 9101); those beside it are ignored.",
    )
    redirect_uri = Text(max_length=2048, required=False, help_text="Required: a registered one.")
    code_challenge = Text(
        max_length=128, required=False, help_text="Required (PKCE): SHA-256 of the verifier, base64url."
    )
    code_challenge_method = Text(max_length=16, required=False, help_text="Required: S256")
    scope = Text(max_length=4096, required=False, help_text="Separated by blanks; `openid` for an ID token.")
    state = Text(max_length=2048, required=False, help_text="Value of the application; returned unchanged.")
    nonce = Text(max_length=1024, required=False, help_text="Random value that becomes a claim of the ID token.")
    prompt = Text(
        max_length=64,
        required=False,
        help_text="What the user must see: none, login, consent, select_account or create.",
    )
    max_age = Text(max_length=9, required=False, help_text="Most seconds since the user was last verified.")
    acr_values = Text(max_length=255, required=False, help_text="aal1 or aal2, preferred first")
    login_hint = Text(
        max_length=LONGEST["login_hint"], required=False, help_text="E-mail address of the user; ignored over 254."
    )
    id_token_hint = Text(max_length=8192, required=False, help_text="An ID token of the only user who may sign in.")
    ui_locales = Text(max_length=255, required=False, help_text="Language tags, preferred first.")
    claims = Text(max_length=4096, required=False, help_text="JSON (OpenID Connect Core section 5.5).")
    dpop_jkt = Text(max_length=43, required=False, help_text="Key that the code is bound to (RFC 9449 section 10).")
    resource = serializers.ListField(
        child=Text(max_length=2048), required=False, help_text="Audiences of the access token; may be repeated."
    )


class PushedAuthorizationOut(serializers.Serializer[object]):
    """RFC 9126 section 2.2."""

    request_uri = serializers.CharField(help_text="For the authorization endpoint, with `client_id`.")
    expires_in = serializers.IntegerField()


class PushedRequestViewSet(ClientEndpoint):
    @endpoint(
        PushedAuthorizationIn,
        id="pushAuthorizationRequest",
        returns={201: PushedAuthorizationOut},
        errors=[*CLIENT_ERRORS, PushedRequestRejected, DpopProofInvalid, DpopNonceRequired, TenantSuspended],
        token="none",
        headers={
            **BASIC_HEADER,
            "DPoP": "A proof of possession that binds the code to its key (RFC 9449 section 10.1).",
        },
    )
    def push(self, request: Request, slug: str) -> Response:
        """Push an authorization request.

        RFC 9126. The `request_uri` can be opened for 90 seconds, also again by a reload, until the request is finished.
        """
        client, _ = authenticate_at(self, PushedAuthorizationIn)
        attempts.limit_client("authorization", client_id=client.id, confidential=client.confidential)
        # Also parameters that the serializer does not know: `request_uri` is an error.
        body: dict[str, str | list[str]] = dict(request.data)
        sent = Sent(
            (name, each) for name, value in body.items() for each in ([value] if isinstance(value, str) else value)
        )
        # A code is bound to a key, never to a certificate: the client authenticates to use it.
        jkt = "" if client.certificate_bound else presented_binding(request, client)
        try:
            request_uri = push_request(tenant=client.tenant, client_id=client.id, sent=sent, dpop_jkt=jkt)
        except RequestRejected as problem:
            raise PushedRequestRejected(problem) from problem
        return Response({"request_uri": request_uri, "expires_in": PUSHED_SECONDS}, status=201, headers=NO_STORE)

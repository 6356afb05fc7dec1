"""The userinfo endpoint of a tenant (OpenID Connect Core section 5.3)."""

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import AccessTokenInvalid, InsufficientScope, NotSignedIn
from identity_platform.api.fields import Text
from identity_platform.api.parsers import StrictFormParser
from identity_platform.api.views import ApiViewSet, endpoint
from openid.tenant_of_request import address_first
from openid.userinfo.actions import claims_of_token
from tenants.errors import TenantBusy, TenantSuspended, UnknownTenant
from userflow.branding.texts import LANGUAGES
from userflow.oauth_errors import DpopRejected, DpopRejectedWithoutNonce, InvalidRequest
from userflow.sessions.authentication import presented_token
from userflow.sessions.permissions import Anyone
from userflow.sessions.views import NO_STORE

ERRORS = [
    NotSignedIn,
    AccessTokenInvalid,
    DpopRejected,
    DpopRejectedWithoutNonce,
    InsufficientScope,
    UnknownTenant,
    TenantSuspended,
    TenantBusy,
]
AUTHORIZATION = {"Authorization": "`Bearer`, or `DPoP` with a proof, and an access token with the scope `openid`."}


class UserinfoIn(serializers.Serializer[object]):
    """RFC 6750 section 2.2."""

    access_token = Text(
        max_length=16384, required=False, help_text="The access token, instead of the header Authorization."
    )


class UserinfoOut(serializers.Serializer[object]):
    """OpenID Connect Core section 5.3.2. Claims without a value are absent."""

    sub = serializers.UUIDField(help_text="Id of the user.")
    name = serializers.CharField(required=False, help_text="Name of the user.")
    locale = serializers.ChoiceField(LANGUAGES, required=False, help_text="The language that the user has chosen.")
    updated_at = serializers.IntegerField(
        required=False, help_text="When the user was last changed, in seconds since 1970."
    )
    email = serializers.CharField(required=False)
    email_verified = serializers.BooleanField(required=False)
    phone_number = serializers.CharField(required=False)
    phone_number_verified = serializers.BooleanField(required=False)
    groups = serializers.ListField(child=serializers.CharField(), required=False)
    roles = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="Names of the roles, including those from groups."
    )


class UserinfoViewSet(ApiViewSet):
    # Tokens for other audiences than the platform's API are valid here, so the endpoint checks them itself.
    permission_classes = [Anyone]
    authentication_classes = []
    parser_classes = [StrictFormParser]

    @endpoint(id="getUserinfo", returns={200: UserinfoOut}, errors=ERRORS, token="none", headers=AUTHORIZATION)
    def read(self, request: Request, slug: str) -> Response:
        """Get the claims about the user.

        Which claims there are depends on the scopes of the access token and on the claims requested by name. It accepts
        access tokens of the tenant that have the scope `openid`.
        """
        return self._claims(request, None)

    @endpoint(
        UserinfoIn,
        id="getUserinfoByPost",
        returns={200: UserinfoOut},
        errors=[InvalidRequest, *ERRORS],
        token="none",
        headers=AUTHORIZATION,
    )
    def post(self, request: Request, slug: str) -> Response:
        """Get the claims about the user by POST.

        The access token can be in the body instead of the header (RFC 6750 section 2.2).
        """
        return self._claims(request, self.valid(UserinfoIn).get("access_token"))

    def _claims(self, request: Request, sent: str | None) -> Response:
        with address_first(request._request):
            presented = presented_token(request)
            if presented is not None and sent is not None:
                raise InvalidRequest("Send the access token in one way only.")
            if presented is None and sent is None:
                raise NotSignedIn
            scheme, token = presented or ("bearer", sent or "")
            return Response(claims_of_token(request._request, scheme=scheme, token=token), headers=NO_STORE)

"""The device authorization endpoint (RFC 8628 section 3.1)."""

from urllib.parse import urlencode

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.fields import Text
from identity_platform.api.views import endpoint
from openid.authorization.parameters import granted_audiences, granted_scopes
from openid.client_authentication import CLIENT_ERRORS, ClientEndpoint, authenticate_at
from openid.device.codes import INTERVAL_SECONDS, LASTS, new_device_code
from openid.errors import DeviceRequestRejected, RequestRejected
from tenants.entering.context import in_tenant
from tenants.errors import TenantSuspended
from tenants.states import Purpose
from userflow.accounts.grant_types import DEVICE_CODE
from userflow.credentials import attempts
from userflow.oauth_errors import UnauthorizedClient
from userflow.sessions.serializers import ClientProof
from userflow.sessions.views import BASIC_HEADER, NO_STORE


class DeviceAuthorizationIn(ClientProof):
    """RFC 8628 section 3.1, RFC 8707 section 2, and the client's authentication."""

    scope = Text(max_length=4096, required=False, help_text="Separated by blanks; `openid` for an ID token.")
    resource = serializers.ListField(
        child=Text(max_length=2048), required=False, help_text="Audiences of the access token; may be repeated."
    )


class DeviceAuthorizationOut(serializers.Serializer[object]):
    """RFC 8628 section 3.2."""

    device_code = serializers.CharField(help_text="For the token endpoint; never shown to the user.")
    user_code = serializers.CharField(help_text="For the user, such as WDJB-MJHT.")
    verification_uri = serializers.CharField(help_text="Where the user enters the code.")
    verification_uri_complete = serializers.CharField(help_text="The same with the code, for a QR code.")
    expires_in = serializers.IntegerField()
    interval = serializers.IntegerField(help_text="Seconds between two polls of the token endpoint.")


class DeviceAuthorizationViewSet(ClientEndpoint):
    @endpoint(
        DeviceAuthorizationIn,
        id="beginDeviceAuthorization",
        returns={200: DeviceAuthorizationOut},
        errors=[*CLIENT_ERRORS, DeviceRequestRejected, UnauthorizedClient, TenantSuspended],
        token="none",
        headers=BASIC_HEADER,
    )
    def authorize(self, request: Request, slug: str) -> Response:
        """Get the codes of a device without a browser.

        RFC 8628. The user enters `user_code` at `verification_uri`; the device polls the token endpoint with
        `device_code`.
        """
        client, sent = authenticate_at(self, DeviceAuthorizationIn)
        tenant = client.tenant
        client.check_grant_type(DEVICE_CODE)
        attempts.limit_client("authorization", client_id=client.id, confidential=client.confidential)
        try:
            scopes = granted_scopes(sent.get("scope"), client.scopes)
            audiences = granted_audiences(sent.get("resource", []), client.audiences)
        except RequestRejected as problem:
            raise DeviceRequestRejected(problem) from problem
        with in_tenant(tenant.tenant_id, Purpose.SIGN_IN):
            device_code, user_code = new_device_code(
                client_id=client.id,
                scopes=scopes,
                audiences=audiences,
                user_agent=str(request.META.get("HTTP_USER_AGENT", "")),
            )
        page = f"{tenant.root}/device"
        body = {
            "device_code": device_code,
            "user_code": user_code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?{urlencode({'user_code': user_code})}",
            "expires_in": int(LASTS.total_seconds()),
            "interval": INTERVAL_SECONDS,
        }
        return Response(body, headers=NO_STORE)

"""The public keys of a tenant (RFC 7517) and the metadata of its issuer (RFC 8414)."""

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from openid.metadata.documents import provider_metadata
from openid.metadata.serializers import ProviderMetadataOut
from openid.tenant_of_request import tenant_of_request
from tenants.errors import TenantBusy, UnknownTenant
from tenants.states import Purpose
from userflow.sessions import signing
from userflow.sessions.permissions import Anyone
from userflow.sessions.serializers import JwksOut

# Verifiers that run in browsers read these documents too.
PUBLIC = {"Cache-Control": "public, max-age=300", "Access-Control-Allow-Origin": "*"}


class IssuerViewSet(ApiViewSet):
    """What verifiers and client libraries look up about a tenant's issuer."""

    permission_classes = [Anyone]
    authentication_classes = []

    @endpoint(returns={200: JwksOut}, errors=[UnknownTenant, TenantBusy], token="none")
    def jwks(self, request: Request, slug: str) -> Response:
        """Return the tenant's current and still valid signing keys (RFC 7517)."""
        tenant = tenant_of_request(request._request)
        if tenant.allows(Purpose.WRITE):
            # The first look-up creates the key, so that a verifier never caches an empty set.
            signing.signer(tenant.tenant_id)
        return Response({"keys": signing.key_set(tenant.tenant_id).jwks}, headers=PUBLIC)

    @endpoint(returns={200: ProviderMetadataOut}, errors=[UnknownTenant], token="none")
    def metadata(self, request: Request, slug: str) -> Response:
        """Return the endpoints and parameters of the tenant's issuer (RFC 8414, OpenID Connect Discovery)."""
        return Response(provider_metadata(tenant_of_request(request._request)), headers=PUBLIC)

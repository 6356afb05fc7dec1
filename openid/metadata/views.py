"""The public keys of a tenant (RFC 7517) and the metadata of its issuer (RFC 8414)."""

from django.conf import settings
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from tenants import lookup
from tenants.errors import TenantBusy, UnknownTenant
from tenants.issuers import issuer_of
from tenants.states import Purpose
from userflow.sessions import signing
from userflow.sessions.metadata import metadata_of
from userflow.sessions.permissions import Anyone
from userflow.sessions.serializers import JwksOut, MetadataOut

# Verifiers that run in browsers read these documents too.
PUBLIC = {"Cache-Control": "public, max-age=300", "Access-Control-Allow-Origin": "*"}


class IssuerViewSet(ApiViewSet):
    """What verifiers and client libraries look up about a tenant's issuer."""

    permission_classes = [Anyone]
    authentication_classes = []

    @endpoint(returns={200: JwksOut}, errors=[UnknownTenant, TenantBusy], token="none")
    def jwks(self, request: Request, slug: str) -> Response:
        """Return the tenant's current and still valid signing keys (RFC 7517)."""
        tenant = lookup.find_by_slug(slug)
        if tenant.allows(Purpose.WRITE):
            # The first look-up creates the key, so that a verifier never caches an empty set.
            signing.signer(tenant.tenant_id)
        return Response({"keys": signing.key_set(tenant.tenant_id).jwks}, headers=PUBLIC)

    @endpoint(returns={200: MetadataOut}, errors=[UnknownTenant], token="none")
    def metadata(self, request: Request, slug: str) -> Response:
        """Return the OAuth endpoints and parameters of the tenant's issuer (RFC 8414)."""
        tenant = lookup.find_by_slug(slug)
        keys = f"{settings.BASE_URL}/t/{tenant.slug}/jwks"
        return Response(metadata_of(issuer_of(tenant), jwks_uri=keys), headers=PUBLIC)

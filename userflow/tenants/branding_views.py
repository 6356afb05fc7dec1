"""The branding of a tenant over HTTP."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from tenants.entering import lookup
from tenants.errors import TenantBusy, TenantMismatch, TenantSuspended, UnknownTenant
from userflow.branding.models import Branding
from userflow.errors import InsufficientAuthentication
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import SignedIn, reading
from userflow.tenants import branding
from userflow.tenants import branding_serializers as serializers
from userflow.tenants.views import reader_at, writer_at

STATES = [UnknownTenant, TenantMismatch, TenantSuspended, TenantBusy]


class BrandingViewSet(ApiViewSet):
    """How hosted pages and mails of a tenant look, for operators and for the tenant's own admins."""

    permission_classes = [SignedIn]

    @endpoint(id="getTenantBranding", returns={200: serializers.BrandingOut}, errors=STATES)
    def retrieve(self, request: Request, tenant_id: str) -> Response:
        """Get the branding of a tenant.

        For operators with `tenants:read` and the tenant's own admins.
        """
        tenant, caller = reader_at(request, tenant_id, "branding")
        return _response(tenant, branding.read_branding(tenant_id=tenant, purpose=reading(caller)))

    @endpoint(
        serializers.BrandingChanges,
        id="updateTenantBranding",
        returns={200: serializers.BrandingOut},
        errors=[*STATES, InsufficientAuthentication],
        assurance=Action.CHANGE_TENANT_SETTINGS,
    )
    def partial_update(self, request: Request, tenant_id: str) -> Response:
        """Change the branding of a tenant.

        For operators with `tenants:write` and the tenant's own admins with `admins:write`. Only the fields in the body
        change.
        """
        tenant, caller = writer_at(request, tenant_id)
        changes = self.valid(serializers.BrandingChanges)
        return _response(tenant, branding.update_branding(tenant_id=tenant, by=caller, changes=changes))


def _response(tenant_id: UUID, stored_branding: Branding) -> Response:
    return Response(serializers.record(lookup.find(tenant_id), stored_branding))

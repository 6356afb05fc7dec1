"""The branding of a tenant over HTTP."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import NotAllowed
from identity_platform.api.views import ApiViewSet, endpoint
from tenants import lookup
from tenants.errors import TenantBusy, TenantMismatch, TenantSuspended, UnknownTenant
from userflow.branding.models import Branding
from userflow.errors import InsufficientAuthentication
from userflow.ids import tenant_id_in_path
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import ADMIN, OPERATOR, SignedIn, principal_at, reading, require, tenant_at
from userflow.tenants import branding
from userflow.tenants import branding_serializers as serializers

STATES = [UnknownTenant, TenantMismatch, TenantSuspended, TenantBusy]


class BrandingViewSet(ApiViewSet):
    """How hosted pages and mails of a tenant look, for operators and for the tenant's own admins."""

    permission_classes = [SignedIn]

    @endpoint(returns={200: serializers.BrandingOut}, errors=STATES)
    def retrieve(self, request: Request, tenant_id: str) -> Response:
        """The branding of a tenant, for operators (`tenants:read`) and the tenant's own admins; null is the default."""
        tenant, caller = tenant_at(request, tenant_id_in_path(tenant_id)), principal_at(request)
        if caller.kind == OPERATOR:
            require(caller, "tenants:read", OPERATOR)
        elif caller.kind != ADMIN:
            raise NotAllowed("Only operators and admins of the tenant can read its branding.")
        return _response(tenant, branding.read_branding(tenant_id=tenant, purpose=reading(caller)))

    @endpoint(
        serializers.BrandingChanges,
        returns={200: serializers.BrandingOut},
        errors=[*STATES, InsufficientAuthentication],
        assurance=Action.CHANGE_TENANT_SETTINGS,
    )
    def partial_update(self, request: Request, tenant_id: str) -> Response:
        """Change the branding of a tenant, for operators (`tenants:write`) and the tenant's own admins (`admins:write`).

        Fields that are not sent stay as they are. Needs a sign-in that is at most 15 minutes old, with the second factor if
        the caller has one.
        """
        tenant, caller = tenant_at(request, tenant_id_in_path(tenant_id)), principal_at(request)
        if caller.kind == OPERATOR:
            require(caller, "tenants:write", OPERATOR)
        else:
            require(caller, "admins:write", ADMIN)
        changes = self.valid(serializers.BrandingChanges)
        return _response(tenant, branding.update_branding(tenant_id=tenant, by=caller, changes=changes))


def _response(tenant_id: UUID, found: Branding) -> Response:
    return Response(serializers.record(lookup.find(tenant_id), found))

"""Tenants over HTTP, for operators."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from tenants.errors import NoRoom, NotConfirmed, RelyingPartyTaken, SlugTaken, UnknownTenant, WrongState
from userflow.ids import id_or
from userflow.permissions import OPERATOR, needs
from userflow.tenants import actions, serializers

Reads = needs("tenants:read", OPERATOR)
Writes = needs("tenants:write", OPERATOR)


class TenantViewSet(ApiViewSet):
    def get_permissions(self) -> list[BasePermission]:
        return [(Reads if self.action in ("list", "retrieve") else Writes)()]

    @endpoint(query=serializers.TenantListQuery, returns={200: serializers.TenantListOut})
    def list(self, request: Request) -> Response:
        """Tenants, newest first; by a part of the name, by slug or by status."""
        found = actions.list_tenants(**self.valid_query(serializers.TenantListQuery))
        rows: Any = found.rows
        return Response({"tenants": [serializers.record(t, t.client_id) for t in rows], **found.totals()})

    @endpoint(
        serializers.TenantIn, returns={201: serializers.TenantOut}, refuses=[SlugTaken, RelyingPartyTaken, NoRoom]
    )
    def create(self, request: Request) -> Response:
        """Make a tenant; answered when its database is ready."""
        asked = self.valid(serializers.TenantIn)
        made = actions.open_tenant(name=asked["name"], slug=asked.get("slug"), tenant_settings=asked.get("settings"))
        return Response(serializers.record(made.tenant, made.client_id), status=201)

    @endpoint(returns={200: serializers.TenantOut}, refuses=[UnknownTenant])
    def retrieve(self, request: Request, tenant_id: str) -> Response:
        """One tenant."""
        tenant: Any = actions.find_tenant(tenant_id=id_or(tenant_id, UnknownTenant))
        return Response(serializers.record(tenant, tenant.client_id))

    @endpoint(
        serializers.TenantChanges,
        returns={200: serializers.TenantOut},
        refuses=[UnknownTenant, SlugTaken, RelyingPartyTaken, WrongState],
    )
    def partial_update(self, request: Request, tenant_id: str) -> Response:
        """Change name, slug, settings, or status (active, suspended)."""
        changes = self.valid(serializers.TenantChanges)
        tenant: Any = actions.update_tenant(tenant_id=id_or(tenant_id, UnknownTenant), changes=changes)
        return Response(serializers.record(tenant, tenant.client_id))

    @endpoint(
        serializers.TenantDeletion,
        returns={200: serializers.TenantDeletedOut},
        refuses=[UnknownTenant, NotConfirmed, WrongState],
    )
    def destroy(self, request: Request, tenant_id: str) -> Response:
        """Delete a tenant and its database for good; the body repeats its slug."""
        wanted = id_or(tenant_id, UnknownTenant)
        actions.remove_tenant(tenant_id=wanted, confirm=self.valid(serializers.TenantDeletion)["confirm"])
        return Response({"message": "The tenant and its database are deleted.", "tenant_id": wanted})

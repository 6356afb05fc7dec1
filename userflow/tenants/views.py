"""Tenants over HTTP, for operators."""

from uuid import UUID

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import NotAllowed
from identity_platform.api.views import ApiViewSet, endpoint
from tenants.errors import (
    CopyFailed,
    JobRunning,
    NoRoom,
    NotConfirmed,
    ProgramMissing,
    RelyingPartyInUse,
    RelyingPartyTaken,
    SlugNotConfirmed,
    SlugTaken,
    TenantMismatch,
    UnknownTenant,
    WrongState,
)
from tenants.models import Tenant
from userflow.accounts.principals import Principal
from userflow.errors import GrantsMoreThanHeld, InsufficientAuthentication
from userflow.ids import id_or, tenant_id_in_path
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import ADMIN, OPERATOR, SignedIn, needs, principal_at, require, tenant_at
from userflow.tenants import actions, serializers

TENANCY = [UnknownTenant, TenantMismatch]


def reader_at(request: Request, tenant_id: str, what: str) -> tuple[UUID, Principal]:
    """Return the tenant in the path and a caller who may read it: an operator or an admin of the tenant."""
    tenant, caller = tenant_at(request, tenant_id_in_path(tenant_id)), principal_at(request)
    if caller.kind == OPERATOR:
        require(caller, "tenants:read", OPERATOR)
    elif caller.kind != ADMIN:
        raise NotAllowed(f"Only operators and admins of the tenant can read its {what}.")
    return tenant, caller


def writer_at(request: Request, tenant_id: str) -> tuple[UUID, Principal]:
    """Return the tenant in the path and a caller who may change it, likewise."""
    tenant, caller = tenant_at(request, tenant_id_in_path(tenant_id)), principal_at(request)
    if caller.kind == OPERATOR:
        require(caller, "tenants:write", OPERATOR)
    else:
        require(caller, "admins:write", ADMIN)
    return tenant, caller


Reads = needs("tenants:read", OPERATOR)
Writes = needs("tenants:write", OPERATOR)


class TenantViewSet(ApiViewSet):
    def get_permissions(self) -> list[BasePermission]:
        return [(Reads if self.action in ("list", "retrieve") else Writes)()]

    @endpoint(id="listTenants", query=serializers.TenantListQuery, returns={200: serializers.TenantListOut})
    def list(self, request: Request) -> Response:
        """List tenants.

        Newest first, filtered by part of the name, by slug or by status.
        """
        page = actions.list_tenants(**self.valid_query(serializers.TenantListQuery))
        clients = actions.default_clients(page.rows)
        shown = [serializers.record(tenant, clients.get(tenant.pk)) for tenant in page.rows]
        return Response({"tenants": shown, **page.totals()})

    @endpoint(
        serializers.TenantIn,
        id="createTenant",
        returns={201: serializers.TenantOut},
        errors=[SlugTaken, RelyingPartyTaken, NoRoom, JobRunning, GrantsMoreThanHeld],
    )
    def create(self, request: Request) -> Response:
        """Create a tenant.

        The response is sent when its database is ready, after some seconds.
        """
        fields = self.valid(serializers.TenantIn)
        made = actions.open_tenant(
            name=fields["name"],
            slug=fields.get("slug"),
            tenant_settings=fields.get("settings"),
            by=principal_at(request),
        )
        return Response(serializers.record(made.tenant, made.client_id), status=201)

    @endpoint(id="getTenant", returns={200: serializers.TenantOut}, errors=[UnknownTenant])
    def retrieve(self, request: Request, tenant_id: str) -> Response:
        """Get a tenant."""
        return Response(_record(actions.find_tenant(tenant_id=id_or(tenant_id, UnknownTenant))))

    @endpoint(
        serializers.TenantChanges,
        id="updateTenant",
        returns={200: serializers.TenantOut},
        errors=[
            UnknownTenant,
            SlugTaken,
            SlugNotConfirmed,
            RelyingPartyTaken,
            RelyingPartyInUse,
            WrongState,
            JobRunning,
            InsufficientAuthentication,
            GrantsMoreThanHeld,
        ],
        assurance=(Action.CHANGE_TENANT_SETTINGS, Action.CHANGE_TENANT_STATE),
    )
    def partial_update(self, request: Request, tenant_id: str) -> Response:
        """Change, suspend or resume a tenant.

        Only the fields in the body change. A new slug changes the issuer, so it needs `confirm` with the present slug and
        a recent proof; the former slug stays reserved to the tenant. While a tenant is suspended, its users and clients
        cannot sign in and their tokens are rejected.
        """
        tenant_uuid, changes = id_or(tenant_id, UnknownTenant), self.valid(serializers.TenantChanges)
        return Response(
            _record(actions.update_tenant(tenant_id=tenant_uuid, by=principal_at(request), changes=changes))
        )

    @endpoint(
        serializers.TenantDeletion,
        id="deleteTenant",
        returns={200: serializers.DeletedTenantOut},
        errors=[
            UnknownTenant,
            NotConfirmed,
            WrongState,
            CopyFailed,
            ProgramMissing,
            JobRunning,
            InsufficientAuthentication,
        ],
        assurance=Action.CHANGE_TENANT_STATE,
    )
    def destroy(self, request: Request, tenant_id: str) -> Response:
        """Delete a tenant with its database.

        The body repeats the slug. A final encrypted backup is written first unless `final_backup` is false, so the call
        takes as long as a backup.
        """
        tenant_uuid = id_or(tenant_id, UnknownTenant)
        fields = self.valid(serializers.TenantDeletion)
        final_backup = actions.remove_tenant(tenant_id=tenant_uuid, by=principal_at(request), **fields)
        message = "The tenant and its database are deleted." + (
            " The command restore_deleted_tenant can bring it back until its final backup is deleted."
            if final_backup.until
            else " There is no final backup."
        )
        return Response({"message": message, "tenant_id": tenant_uuid, "final_backup_until": final_backup.until})


class TenantSettingsViewSet(ApiViewSet):
    """The settings of a tenant, for operators and for the tenant's own admins."""

    permission_classes = [SignedIn]

    @endpoint(id="getTenantSettings", returns={200: serializers.TenantSettingsOut}, errors=TENANCY)
    def retrieve(self, request: Request, tenant_id: str) -> Response:
        """Get the settings of a tenant.

        For operators with `tenants:read` and the tenant's own admins. `effective` has every setting with the value that
        applies.
        """
        tenant, _ = reader_at(request, tenant_id, "settings")
        return _settings(tenant)

    @endpoint(
        serializers.TenantSettingsChanges,
        id="updateTenantSettings",
        returns={200: serializers.TenantSettingsOut},
        errors=[*TENANCY, RelyingPartyTaken, RelyingPartyInUse, InsufficientAuthentication, GrantsMoreThanHeld],
        assurance=Action.CHANGE_TENANT_SETTINGS,
    )
    def partial_update(self, request: Request, tenant_id: str) -> Response:
        """Change the settings of a tenant.

        For operators with `tenants:write` and the tenant's own admins with `admins:write`. Only the settings in the
        body change. Those that decide where links of mails lead need all permissions of the role `tenant-admin`.
        """
        tenant, caller = writer_at(request, tenant_id)
        actions.update_tenant(tenant_id=tenant, by=caller, changes=self.valid(serializers.TenantSettingsChanges))
        return _settings(tenant)


def _record(tenant: Tenant) -> dict[str, object]:
    return serializers.record(tenant, actions.default_clients([tenant]).get(tenant.pk))


def _settings(tenant_id: UUID) -> Response:
    tenant_settings, effective = actions.read_settings(tenant_id=tenant_id)
    return Response({"tenant_id": tenant_id, "settings": tenant_settings, "effective": effective})

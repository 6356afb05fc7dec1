"""Roles over HTTP."""

from uuid import UUID

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from userflow.errors import (
    BuiltInRole,
    GrantsMoreThanHeld,
    InsufficientAuthentication,
    RoleNameTaken,
    UnknownRoleId,
    UnknownUsers,
)
from userflow.ids import id_or
from userflow.named_tenant import TENANCY, NamedTenant, TenantPageQuery
from userflow.roles import actions, serializers
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import needs, principal_at, tenant_at

READING = ("list", "retrieve", "bindings")


class RoleViewSet(ApiViewSet):
    def get_permissions(self) -> list[BasePermission]:
        return [needs("roles:read" if self.action in READING else "roles:write")()]

    @endpoint(query=serializers.RoleListQuery, returns={200: serializers.RoleListOut}, errors=TENANCY)
    def list(self, request: Request) -> Response:
        """Roles of a tenant, newest first."""
        asked = self.valid_query(serializers.RoleListQuery)
        found = actions.list_roles(tenant_id=tenant_at(request, asked.pop("tenant_id", None)), **asked)
        return Response({"roles": [serializers.record(role) for role in found.rows], **found.totals()})

    @endpoint(
        serializers.RoleIn, returns={201: serializers.RoleOut}, errors=[RoleNameTaken, GrantsMoreThanHeld, *TENANCY]
    )
    def create(self, request: Request) -> Response:
        """Create a role. The tenant chooses its permissions freely, except the platform's, which the caller must hold."""
        fields = self.valid(serializers.RoleIn)
        tenant_id = tenant_at(request, fields.pop("tenant_id", None))
        role = actions.create_role(tenant_id=tenant_id, by=principal_at(request), **fields)
        return Response(serializers.record(role), status=201)

    @endpoint(query=NamedTenant, returns={200: serializers.RoleOut}, errors=[UnknownRoleId, *TENANCY])
    def retrieve(self, request: Request, role_id: str) -> Response:
        """One role."""
        role = actions.find_role(tenant_id=self._tenant(request), role_id=id_or(role_id, UnknownRoleId))
        return Response(serializers.record(role))

    @endpoint(
        serializers.RoleChanges,
        returns={200: serializers.RoleOut},
        errors=[UnknownRoleId, RoleNameTaken, BuiltInRole, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.GRANT_ROLES,
    )
    def update(self, request: Request, role_id: str) -> Response:
        """Change the given fields. `permissions` replaces all permissions and applies at the next request."""
        changes = self.valid(serializers.RoleChanges)
        tenant_id = tenant_at(request, changes.pop("tenant_id", None))
        wanted = id_or(role_id, UnknownRoleId)
        role = actions.update_role(tenant_id=tenant_id, by=principal_at(request), role_id=wanted, changes=changes)
        return Response(serializers.record(role))

    @endpoint(
        query=NamedTenant,
        returns={200: serializers.RoleDeletedOut},
        errors=[UnknownRoleId, BuiltInRole, GrantsMoreThanHeld, *TENANCY],
    )
    def destroy(self, request: Request, role_id: str) -> Response:
        """Delete a role; its users lose it at their next request."""
        wanted = id_or(role_id, UnknownRoleId)
        actions.delete_role(tenant_id=self._tenant(request), by=principal_at(request), role_id=wanted)
        return Response({"message": "The role is deleted.", "id": wanted})

    @endpoint(query=TenantPageQuery, returns={200: serializers.MemberListOut}, errors=[UnknownRoleId, *TENANCY])
    def bindings(self, request: Request, role_id: str) -> Response:
        """Users bound to the role, newest first; without those who have it by a group."""
        asked = self.valid_query(TenantPageQuery)
        tenant_id = tenant_at(request, asked.pop("tenant_id", None))
        found = actions.list_bindings(tenant_id=tenant_id, role_id=id_or(role_id, UnknownRoleId), **asked)
        return Response({"users": found.rows, **found.totals()})

    @endpoint(
        serializers.UserIdsIn,
        returns={200: serializers.BoundOut},
        errors=[UnknownRoleId, UnknownUsers, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.GRANT_ROLES,
    )
    def bind(self, request: Request, role_id: str) -> Response:
        """Bind the role to all of these users, or to none; existing bindings stay."""
        tenant_id, user_ids = self._users(request)
        wanted = id_or(role_id, UnknownRoleId)
        changed = actions.bind_users(tenant_id=tenant_id, by=principal_at(request), role_id=wanted, user_ids=user_ids)
        return Response({"message": "The users have the role.", "role_id": wanted, "changed": changed})

    @endpoint(
        serializers.UserIdsIn,
        returns={200: serializers.BoundOut},
        errors=[UnknownRoleId, UnknownUsers, GrantsMoreThanHeld, *TENANCY],
    )
    def unbind(self, request: Request, role_id: str) -> Response:
        """Unbind the role from all of these users, or from none; applies at their next request."""
        tenant_id, user_ids = self._users(request)
        wanted = id_or(role_id, UnknownRoleId)
        changed = actions.unbind_users(tenant_id=tenant_id, by=principal_at(request), role_id=wanted, user_ids=user_ids)
        return Response({"message": "The users are not bound to the role.", "role_id": wanted, "changed": changed})

    def _tenant(self, request: Request) -> UUID:
        return tenant_at(request, self.valid_query(NamedTenant).get("tenant_id"))

    def _users(self, request: Request) -> tuple[UUID, set[UUID]]:
        asked = self.valid(serializers.UserIdsIn)
        return tenant_at(request, asked.get("tenant_id")), set(asked["user_ids"])

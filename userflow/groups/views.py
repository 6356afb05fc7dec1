"""Groups over HTTP."""

from uuid import UUID

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from userflow.errors import (
    GrantsMoreThanHeld,
    GroupNameTaken,
    InsufficientAuthentication,
    UnknownGroup,
    UnknownRole,
    UnknownUsers,
)
from userflow.groups import actions, serializers
from userflow.ids import id_or
from userflow.named_tenant import TENANCY, NamedTenant, TenantPageQuery
from userflow.roles.serializers import MemberListOut, UserIdsIn
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import needs, principal_at, tenant_at

READING = ("list", "retrieve", "members")


class GroupViewSet(ApiViewSet):
    def get_permissions(self) -> list[BasePermission]:
        return [needs("groups:read" if self.action in READING else "groups:write")()]

    @endpoint(query=serializers.GroupListQuery, returns={200: serializers.GroupListOut}, errors=TENANCY)
    def list(self, request: Request) -> Response:
        """Groups of a tenant with their roles, newest first."""
        asked = self.valid_query(serializers.GroupListQuery)
        found = actions.list_groups(tenant_id=tenant_at(request, asked.pop("tenant_id", None)), **asked)
        return Response({"groups": [serializers.record(group) for group in found.rows], **found.totals()})

    @endpoint(
        serializers.GroupIn,
        returns={201: serializers.GroupOut},
        errors=[GroupNameTaken, UnknownRole, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.GRANT_ROLES,
    )
    def create(self, request: Request) -> Response:
        """Create a group with the given roles."""
        fields = self.valid(serializers.GroupIn)
        tenant_id = tenant_at(request, fields.pop("tenant_id", None))
        group = actions.create_group(tenant_id=tenant_id, by=principal_at(request), **fields)
        return Response(serializers.record(group), status=201)

    @endpoint(query=NamedTenant, returns={200: serializers.GroupOut}, errors=[UnknownGroup, *TENANCY])
    def retrieve(self, request: Request, group_id: str) -> Response:
        """One group with its roles."""
        group = actions.find_group(tenant_id=self._tenant(request), group_id=id_or(group_id, UnknownGroup))
        return Response(serializers.record(group))

    @endpoint(
        serializers.GroupChanges,
        returns={200: serializers.GroupOut},
        errors=[UnknownGroup, GroupNameTaken, UnknownRole, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.GRANT_ROLES,
    )
    def update(self, request: Request, group_id: str) -> Response:
        """Change the given fields. `roles` replaces all roles and applies at the next request."""
        changes = self.valid(serializers.GroupChanges)
        tenant_id = tenant_at(request, changes.pop("tenant_id", None))
        wanted = id_or(group_id, UnknownGroup)
        group = actions.update_group(tenant_id=tenant_id, by=principal_at(request), group_id=wanted, changes=changes)
        return Response(serializers.record(group))

    @endpoint(
        query=NamedTenant,
        returns={200: serializers.GroupDeletedOut},
        errors=[UnknownGroup, GrantsMoreThanHeld, *TENANCY],
    )
    def destroy(self, request: Request, group_id: str) -> Response:
        """Delete a group; its members lose its roles at their next request."""
        wanted = id_or(group_id, UnknownGroup)
        actions.delete_group(tenant_id=self._tenant(request), by=principal_at(request), group_id=wanted)
        return Response({"message": "The group is deleted.", "id": wanted})

    @endpoint(query=TenantPageQuery, returns={200: MemberListOut}, errors=[UnknownGroup, *TENANCY])
    def members(self, request: Request, group_id: str) -> Response:
        """Members of the group, newest first."""
        asked = self.valid_query(TenantPageQuery)
        tenant_id = tenant_at(request, asked.pop("tenant_id", None))
        found = actions.list_members(tenant_id=tenant_id, group_id=id_or(group_id, UnknownGroup), **asked)
        return Response({"users": found.rows, **found.totals()})

    @endpoint(
        UserIdsIn,
        returns={200: serializers.JoinedOut},
        errors=[UnknownGroup, UnknownUsers, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.GRANT_ROLES,
    )
    def join(self, request: Request, group_id: str) -> Response:
        """Add all of these users to the group, or none; existing members stay."""
        tenant_id, user_ids = self._users(request)
        wanted = id_or(group_id, UnknownGroup)
        changed = actions.add_members(tenant_id=tenant_id, by=principal_at(request), group_id=wanted, user_ids=user_ids)
        return Response({"message": "The users are in the group.", "group_id": wanted, "changed": changed})

    @endpoint(
        UserIdsIn,
        returns={200: serializers.JoinedOut},
        errors=[UnknownGroup, UnknownUsers, GrantsMoreThanHeld, *TENANCY],
    )
    def leave(self, request: Request, group_id: str) -> Response:
        """Remove all of these users from the group, or none; applies at their next request."""
        tenant_id, user_ids = self._users(request)
        wanted = id_or(group_id, UnknownGroup)
        changed = actions.remove_members(
            tenant_id=tenant_id, by=principal_at(request), group_id=wanted, user_ids=user_ids
        )
        return Response({"message": "The users are not in the group.", "group_id": wanted, "changed": changed})

    def _tenant(self, request: Request) -> UUID:
        return tenant_at(request, self.valid_query(NamedTenant).get("tenant_id"))

    def _users(self, request: Request) -> tuple[UUID, set[UUID]]:
        asked = self.valid(UserIdsIn)
        return tenant_at(request, asked.get("tenant_id")), set(asked["user_ids"])

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import CursorInvalid
from identity_platform.api.responses import DeletedRecordOut
from identity_platform.api.views import endpoint
from userflow.errors import (
    BuiltInRole,
    GrantsMoreThanHeld,
    InsufficientAuthentication,
    RoleNameTaken,
    UnknownRoleId,
    UnknownUsers,
)
from userflow.named_tenant import TENANCY, InTenantViewSet, TenantParameter
from userflow.roles import actions, serializers
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import principal_at


class RoleViewSet(InTenantViewSet):
    area = "roles"
    reads = ("list", "retrieve", "bindings")
    unknown = UnknownRoleId

    @endpoint(id="listRoles", query=serializers.RoleListQuery, returns={200: serializers.RoleListOut}, errors=TENANCY)
    def list(self, request: Request) -> Response:
        """List roles.

        Roles of a tenant for its end users, newest first.
        """
        page = actions.list_roles(**self.arguments())
        return Response({"roles": [serializers.record(role) for role in page.rows], **page.totals()})

    @endpoint(
        serializers.RoleIn,
        id="createRole",
        returns={201: serializers.RoleOut},
        errors=[RoleNameTaken, GrantsMoreThanHeld, *TENANCY],
    )
    def create(self, request: Request) -> Response:
        """Create a role.

        The tenant chooses the permissions freely. The caller must hold those that have a meaning on the platform, such
        as `endusers:read`.
        """
        role = actions.create_role(by=principal_at(request), **self.arguments())
        return Response(serializers.record(role), status=201)

    @endpoint(id="getRole", query=TenantParameter, returns={200: serializers.RoleOut}, errors=[UnknownRoleId, *TENANCY])
    def retrieve(self, request: Request, role_id: str) -> Response:
        """Get a role."""
        return Response(serializers.record(actions.find_role(**self.arguments())))

    @endpoint(
        serializers.RoleChanges,
        id="updateRole",
        returns={200: serializers.RoleOut},
        errors=[UnknownRoleId, RoleNameTaken, BuiltInRole, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.GRANT_ROLES,
    )
    def update(self, request: Request, role_id: str) -> Response:
        """Change a role.

        Only the fields in the body change; `permissions` replaces all. The change applies to users of the role at their
        next request.
        """
        return Response(serializers.record(actions.update_role(by=principal_at(request), **self.changes())))

    @endpoint(
        id="deleteRole",
        query=TenantParameter,
        returns={200: DeletedRecordOut},
        errors=[UnknownRoleId, BuiltInRole, GrantsMoreThanHeld, *TENANCY],
    )
    def destroy(self, request: Request, role_id: str) -> Response:
        """Delete a role.

        Its users lose it at their next request. Built-in roles cannot be deleted.
        """
        arguments = self.arguments()
        actions.delete_role(by=principal_at(request), **arguments)
        return Response({"message": "The role is deleted.", "id": arguments["role_id"]})

    @endpoint(
        id="listRoleBindings",
        query=serializers.MemberListQuery,
        returns={200: serializers.MemberListOut},
        errors=[UnknownRoleId, CursorInvalid, *TENANCY],
    )
    def bindings(self, request: Request, role_id: str) -> Response:
        """List the users of a role.

        Newest first; without users who have the role from a group.
        """
        page = actions.list_bindings(**self.arguments())
        return Response({"users": page.rows, **page.totals(), "next_cursor": page.next_cursor})

    @endpoint(
        serializers.UserIdsIn,
        id="bindRole",
        returns={200: serializers.ChangedRoleBindingsOut},
        errors=[UnknownRoleId, UnknownUsers, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.GRANT_ROLES,
    )
    def bind(self, request: Request, role_id: str) -> Response:
        """Give a role to users.

        All of the users get it, or none: unknown users return 404 with their ids. Users who have it keep it.
        """
        arguments = self.arguments()
        changed = actions.bind_users(by=principal_at(request), **arguments)
        return Response({"message": "The users have the role.", "role_id": arguments["role_id"], "changed": changed})

    @endpoint(
        serializers.UserIdsIn,
        id="unbindRole",
        returns={200: serializers.ChangedRoleBindingsOut},
        errors=[UnknownRoleId, UnknownUsers, GrantsMoreThanHeld, *TENANCY],
    )
    def unbind(self, request: Request, role_id: str) -> Response:
        """Take a role from users.

        All of the users lose it, or none, at their next request. They keep it if a group gives it to them.
        """
        arguments = self.arguments()
        changed = actions.unbind_users(by=principal_at(request), **arguments)
        message = "The users are not bound to the role."
        return Response({"message": message, "role_id": arguments["role_id"], "changed": changed})

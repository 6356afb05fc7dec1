from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import CursorInvalid
from identity_platform.api.responses import DeletedRecordOut
from identity_platform.api.views import endpoint
from userflow.errors import (
    GrantsMoreThanHeld,
    GroupNameTaken,
    InsufficientAuthentication,
    UnknownGroup,
    UnknownRole,
    UnknownUsers,
)
from userflow.groups import actions, serializers
from userflow.named_tenant import TENANCY, InTenantViewSet, TenantParameter
from userflow.roles.serializers import MemberListOut, MemberListQuery, UserIdsIn
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import principal_at


class GroupViewSet(InTenantViewSet):
    area = "groups"
    reads = ("list", "retrieve", "members")
    unknown = UnknownGroup

    @endpoint(
        id="listGroups", query=serializers.GroupListQuery, returns={200: serializers.GroupListOut}, errors=TENANCY
    )
    def list(self, request: Request) -> Response:
        """List groups.

        Groups of a tenant with their roles, newest first.
        """
        page = actions.list_groups(**self.arguments())
        return Response({"groups": [serializers.record(group) for group in page.rows], **page.totals()})

    @endpoint(
        serializers.GroupIn,
        id="createGroup",
        returns={201: serializers.GroupOut},
        errors=[GroupNameTaken, UnknownRole, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.GRANT_ROLES,
    )
    def create(self, request: Request) -> Response:
        """Create a group.

        Members of the group have its roles. The caller must hold every permission of the roles.
        """
        group = actions.create_group(by=principal_at(request), **self.arguments())
        return Response(serializers.record(group), status=201)

    @endpoint(
        id="getGroup", query=TenantParameter, returns={200: serializers.GroupOut}, errors=[UnknownGroup, *TENANCY]
    )
    def retrieve(self, request: Request, group_id: str) -> Response:
        """Get a group.

        The group with its roles; its members have a list of their own.
        """
        return Response(serializers.record(actions.find_group(**self.arguments())))

    @endpoint(
        serializers.GroupChanges,
        id="updateGroup",
        returns={200: serializers.GroupOut},
        errors=[UnknownGroup, GroupNameTaken, UnknownRole, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.GRANT_ROLES,
    )
    def update(self, request: Request, group_id: str) -> Response:
        """Change a group.

        Only the fields in the body change; `roles` replaces all. The change applies to members at their next request.
        """
        return Response(serializers.record(actions.update_group(by=principal_at(request), **self.changes())))

    @endpoint(
        id="deleteGroup",
        query=TenantParameter,
        returns={200: DeletedRecordOut},
        errors=[UnknownGroup, GrantsMoreThanHeld, *TENANCY],
    )
    def destroy(self, request: Request, group_id: str) -> Response:
        """Delete a group.

        Its members lose the roles of the group at their next request. The users stay.
        """
        arguments = self.arguments()
        actions.delete_group(by=principal_at(request), **arguments)
        return Response({"message": "The group is deleted.", "id": arguments["group_id"]})

    @endpoint(
        id="listGroupMembers",
        query=MemberListQuery,
        returns={200: MemberListOut},
        errors=[UnknownGroup, CursorInvalid, *TENANCY],
    )
    def members(self, request: Request, group_id: str) -> Response:
        """List the members of a group.

        Newest first.
        """
        page = actions.list_members(**self.arguments())
        return Response({"users": page.rows, **page.totals(), "next_cursor": page.next_cursor})

    @endpoint(
        UserIdsIn,
        id="addGroupMembers",
        returns={200: serializers.ChangedGroupMembersOut},
        errors=[UnknownGroup, UnknownUsers, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.GRANT_ROLES,
    )
    def join(self, request: Request, group_id: str) -> Response:
        """Add users to a group.

        All of the users are added, or none: unknown users return 404 with their ids. Members stay members.
        """
        arguments = self.arguments()
        changed = actions.add_members(by=principal_at(request), **arguments)
        return Response(
            {"message": "The users are in the group.", "group_id": arguments["group_id"], "changed": changed}
        )

    @endpoint(
        UserIdsIn,
        id="removeGroupMembers",
        returns={200: serializers.ChangedGroupMembersOut},
        errors=[UnknownGroup, UnknownUsers, GrantsMoreThanHeld, *TENANCY],
    )
    def leave(self, request: Request, group_id: str) -> Response:
        """Remove users from a group.

        All of the users are removed, or none. They lose the roles of the group at their next request.
        """
        arguments = self.arguments()
        changed = actions.remove_members(by=principal_at(request), **arguments)
        message = "The users are not in the group."
        return Response({"message": message, "group_id": arguments["group_id"], "changed": changed})

from rest_framework import serializers

from identity_platform.api.fields import Identifier, Items, Text, fields_of
from identity_platform.api.pagination import PaginationOut
from userflow.accounts.models import Group
from userflow.named_tenant import TenantPageQuery, TenantParameter

MOST_ROLES = 50


def record(group: Group) -> dict[str, object]:
    """Return a group as responses show it; its roles must be prefetched."""
    return fields_of(GroupOut, group, roles=sorted(role.name for role in group.roles.all()))


class GroupOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    roles = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class GroupListQuery(TenantPageQuery):
    name = Text(max_length=255, required=False, help_text="Part of the name, case-insensitive.")
    user_id = Identifier(required=False, help_text="Groups of this user.")


class GroupListOut(PaginationOut):
    groups = GroupOut(many=True, help_text="Groups of the page, newest first.")


class GroupChanges(TenantParameter):
    name = Text(max_length=255, trim=True, required=False, help_text="Unique in the tenant.")
    description = Text(max_length=1000, required=False, allow_blank=True)
    roles = Items(Text(max_length=63), most=MOST_ROLES, required=False, help_text="Role names; an update replaces all.")


class GroupIn(GroupChanges):
    name = Text(max_length=255, trim=True, help_text="Unique in the tenant.")


class ChangedGroupMembersOut(serializers.Serializer[object]):
    message = serializers.CharField()
    group_id = serializers.UUIDField()
    changed = serializers.IntegerField(help_text="Number of users that changed.")

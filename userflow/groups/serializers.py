"""Shapes of groups."""

from typing import Any

from rest_framework import serializers

from identity_platform.api.fields import Identifier, Items, Text
from identity_platform.api.page_shapes import PaginationOut
from userflow.accounts.models import Group
from userflow.named_tenant import NamedTenant, TenantPageQuery

MOST_ROLES = 50


def record(group: Group) -> dict[str, Any]:
    """A group as it is answered; its roles must have been read."""
    return {
        "id": group.pk,
        "name": group.name,
        "description": group.description,
        "roles": sorted(role.name for role in group.roles.all()),
        "created_at": group.created_at,
        "updated_at": group.updated_at,
    }


class GroupOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    roles = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class GroupListQuery(TenantPageQuery):
    name = Text(max_length=255, required=False, help_text="A part of the name.")
    user_id = Identifier(required=False, help_text="Groups that this user is in.")


class GroupListOut(PaginationOut):
    groups = GroupOut(many=True)


class GroupIn(NamedTenant):
    name = Text(max_length=255, trim=True)
    description = Text(max_length=1000, required=False, allow_blank=True)
    roles = Items(Text(max_length=63), most=MOST_ROLES, required=False, help_text="Names of roles.")


class GroupChanges(NamedTenant):
    name = Text(max_length=255, trim=True, required=False)
    description = Text(max_length=1000, required=False, allow_blank=True)
    roles = Items(Text(max_length=63), most=MOST_ROLES, required=False, help_text="Replaced whole.")


class JoinedOut(serializers.Serializer[Any]):
    message = serializers.CharField()
    group_id = serializers.UUIDField()
    changed = serializers.IntegerField(help_text="Of how many users something changed.")


class GroupDeletedOut(serializers.Serializer[Any]):
    message = serializers.CharField()
    id = serializers.UUIDField()

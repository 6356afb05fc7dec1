import re

from rest_framework import serializers

from identity_platform.api.fields import Identifier, Items, Text, fields_of
from identity_platform.api.pagination import CursorField, NextCursorOut, PaginationOut
from userflow.accounts.lookups import MOST_AT_ONCE
from userflow.accounts.models import Role
from userflow.named_tenant import TenantPageQuery, TenantParameter

_PERMISSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}:[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
MOST_PERMISSIONS = 200


class Permission(Text):
    """`resource:action`, each of up to 63 letters, digits, `.`, `_` and `-`."""

    default_error_messages = {
        "form": "Send resource:action, each of letters, digits, '.', '_' and '-', such as invoices:approve."
    }

    def to_internal_value(self, data: object) -> str:
        text = super().to_internal_value(data)
        if _PERMISSION.fullmatch(text) is None:
            self.fail("form")
        return text

    def openapi(self) -> dict[str, object]:
        return {"type": "string", "pattern": f"^{_PERMISSION.pattern}$"}


def record(role: Role) -> dict[str, object]:
    """Return a role as responses show it."""
    return fields_of(RoleOut, role)


class RoleOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    permissions = serializers.ListField(child=serializers.CharField())
    built_in = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class RoleListQuery(TenantPageQuery):
    name = Text(max_length=63, required=False, help_text="Part of the name, case-insensitive.")
    user_id = Identifier(required=False, help_text="Roles of this user, directly or by a group.")


class RoleListOut(PaginationOut):
    roles = RoleOut(many=True, help_text="Roles of the page, newest first.")


class RoleChanges(TenantParameter):
    name = Text(max_length=63, trim=True, required=False, help_text="Unique in the tenant.")
    description = Text(max_length=1000, required=False, allow_blank=True)
    permissions = Items(
        Permission(),
        most=MOST_PERMISSIONS,
        required=False,
        help_text="Permissions of your choice in the form `resource:action`; an update replaces all.",
    )


class RoleIn(RoleChanges):
    name = Text(max_length=63, trim=True, help_text="Unique in the tenant.")


class UserIdsIn(TenantParameter):
    user_ids = Items(
        Identifier(), most=MOST_AT_ONCE, allow_empty=False, help_text="Ids of the users. All are changed, or none."
    )


class MemberOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    email = serializers.CharField()
    name = serializers.CharField(allow_blank=True)
    active = serializers.BooleanField()
    since = serializers.DateTimeField()


class MemberListQuery(CursorField, TenantPageQuery):
    pass


class MemberListOut(NextCursorOut, PaginationOut):
    users = MemberOut(many=True)


class ChangedRoleBindingsOut(serializers.Serializer[object]):
    message = serializers.CharField()
    role_id = serializers.UUIDField()
    changed = serializers.IntegerField(help_text="Number of users that changed.")

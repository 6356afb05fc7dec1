from rest_framework import serializers

from identity_platform.api.fields import Boolean, EmailAddress, Identifier, Items, Text, fields_of
from identity_platform.api.pagination import PageQuery, PaginationOut, page_limit
from userflow.accounts.models import LONGEST_NAME, AdminUser
from userflow.signin.proof_fields import ProofFields

MOST_ROLES = 50


def record(user: AdminUser) -> dict[str, object]:
    """Return the admin user record of the specification."""
    return fields_of(AdminUserOut, user)


def profile(user: AdminUser) -> dict[str, object]:
    """Return the record with roles, permissions and factors."""
    roles = list(user.roles.all())
    return {
        **record(user),
        "roles": sorted(role.name for role in roles),
        "permissions": sorted({permission for role in roles for permission in role.permissions}),
        "mfa_methods": user.mfa_methods,
    }


class AdminUserOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    username = serializers.CharField()
    email = serializers.CharField()
    first_name = serializers.CharField()
    last_name = serializers.CharField()
    tenant_id = serializers.UUIDField(allow_null=True, help_text="Tenant of the admin user; null for an operator.")
    active = serializers.BooleanField()
    created_at = serializers.DateTimeField()


class AdminUserDetailOut(AdminUserOut):
    roles = serializers.ListField(child=serializers.CharField())
    permissions = serializers.ListField(child=serializers.CharField())
    mfa_methods = serializers.ListField(child=serializers.CharField())


class AdminUserIn(serializers.Serializer[object]):
    username = Text(trim=True, max_length=LONGEST_NAME)
    email = EmailAddress()
    password = Text(max_length=1024, help_text="Password in plain text; a weak one is rejected.")
    first_name = Text(trim=True, max_length=LONGEST_NAME)
    last_name = Text(trim=True, max_length=LONGEST_NAME)
    tenant_id = Identifier(
        required=False, help_text="Tenant of the admin user. An operator who omits it creates an operator."
    )
    roles = Items(
        Text(max_length=63),
        most=MOST_ROLES,
        required=False,
        allow_empty=False,
        help_text="Names of roles. Default: tenant-admin, without a tenant operator.",
    )


class AdminProfileChanges(ProofFields):
    username = Text(trim=True, max_length=LONGEST_NAME, required=False)
    email = EmailAddress(required=False, help_text="New address. One's own needs a proof in the request.")
    first_name = Text(trim=True, max_length=LONGEST_NAME, required=False, allow_blank=True)
    last_name = Text(trim=True, max_length=LONGEST_NAME, required=False, allow_blank=True)


class AdminUserChanges(AdminProfileChanges):
    roles = Items(Text(max_length=63), most=MOST_ROLES, required=False, help_text="Names of roles; replaces all.")


class AdminListQuery(PageQuery):
    tenant_id = Identifier(required=False, help_text="For operators; also taken from the header X-Tenant-ID.")
    username = Text(max_length=LONGEST_NAME, required=False, help_text="Exact username, case-insensitive.")
    email = Text(max_length=254, required=False, help_text="Part of the address, case-insensitive.")
    limit = page_limit(10)


class AdminUserListOut(PaginationOut):
    items = AdminUserDetailOut(many=True)


class AdminActiveIn(serializers.Serializer[object]):
    user_id = Identifier()
    active = Boolean(help_text="False: the user cannot sign in and all sessions end.")

from rest_framework import serializers

from identity_platform.api.fields import Choice, EmailAddress, Identifier, Items, QueryChoice, Text, fields_of
from identity_platform.api.json_field import JsonObject
from identity_platform.api.pagination import PaginationOut
from userflow.accounts.models import LONGEST_EXTERNAL_ID
from userflow.accounts.principals import OPERATOR
from userflow.invitations.models import ACCEPTED, ADMIN, CANCELLED, END_USER, EXPIRED, PENDING
from userflow.invitations.queries import InvitationRecord
from userflow.named_tenant import TenantPageQuery

KINDS = [ADMIN, END_USER]


def record(shown: InvitationRecord, *, to_operator: bool) -> dict[str, object]:
    """Return an invitation as responses show it, without its token. Only operators see the id of an operator."""
    row = shown.row
    is_hidden = row.invited_by_kind == OPERATOR and not to_operator
    return fields_of(
        InvitationOut,
        row,
        roles=shown.roles,
        tenant_id=shown.tenant_id,
        client_id=getattr(row, "client_id", None),
        external_id=getattr(row, "external_id", None),
        app_metadata=getattr(row, "app_metadata", {}),
        status=shown.status,
        invited_by=None if is_hidden else row.invited_by_id,
    )


class InvitationOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    kind = serializers.CharField(help_text="admin or end_user")
    email = serializers.CharField()
    roles = serializers.ListField(child=serializers.CharField())
    tenant_id = serializers.UUIDField(allow_null=True, help_text="Tenant of the future user; null for an operator.")
    client_id = serializers.UUIDField(allow_null=True, help_text="Client of a future end user; null for admin users.")
    external_id = serializers.CharField(allow_null=True, help_text="External id of a future end user.")
    app_metadata = serializers.DictField(help_text="App metadata of a future end user; empty for admin users.")
    status = serializers.CharField(help_text="pending, accepted, cancelled or expired")
    invited_by = serializers.UUIDField(
        allow_null=True, help_text="Id of the user who invited; null for an operator, whom only operators see."
    )
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(help_text="Seven days after it was last sent.")
    accepted_at = serializers.DateTimeField(allow_null=True)
    user_id = serializers.UUIDField(allow_null=True, help_text="User who accepted; null: not accepted.")


class InvitationListQuery(TenantPageQuery):
    status = QueryChoice(
        [PENDING, ACCEPTED, CANCELLED, EXPIRED], required=False, help_text="Only invitations with this status."
    )
    kind = QueryChoice(KINDS, required=False, help_text="Only invitations of this kind of user.")


class InvitationListOut(PaginationOut):
    invitations = InvitationOut(many=True)


class InvitationIn(serializers.Serializer[object]):
    email = EmailAddress(help_text="Address that gets the invitation; it must not have a user yet.")
    kind = Choice(KINDS, help_text="Kind of user to invite.")
    roles = Items(
        Text(max_length=63),
        most=50,
        required=False,
        help_text="Role names. Default for admins: tenant-admin (operator without a tenant).",
    )
    tenant_id = Identifier(
        required=False, help_text="For operators: the user's tenant. Without it an operator is invited."
    )
    client_id = Identifier(required=False, help_text="For end users. Default: the default client.")
    app_metadata = JsonObject(required=False, help_text="For end users. Needs `endusers:write`.")
    external_id = Text(
        max_length=LONGEST_EXTERNAL_ID, required=False, help_text="For end users. Needs `endusers:write`."
    )

    def validate(self, attrs: dict[str, object]) -> dict[str, object]:
        """Reject an empty list of roles: it must not become the default role, which has the most permissions."""
        if attrs["kind"] == ADMIN and attrs.get("roles") == []:
            raise serializers.ValidationError({"roles": "An admin user needs a role. Name one or omit `roles`."})
        return attrs


class AcceptInvitationIn(serializers.Serializer[object]):
    token = Text(max_length=128, help_text="From the link in the mail.")
    password = Text(max_length=1024)
    username = Text(
        max_length=150, trim=True, required=False, help_text="For admin users. Default: the e-mail address."
    )
    name = Text(max_length=255, required=False, allow_blank=True, help_text="Name of the user; can be empty.")


class AcceptedInvitationOut(serializers.Serializer[object]):
    user_id = serializers.UUIDField()
    kind = serializers.CharField(help_text="admin or end_user")
    email = serializers.CharField()
    username = serializers.CharField(required=False, help_text="Of admin users only.")
    tenant_id = serializers.UUIDField(allow_null=True, help_text="Tenant of the user; null for an operator.")
    client_id = serializers.UUIDField(allow_null=True, help_text="Client of an end user; null for admin users.")
    message = serializers.CharField()

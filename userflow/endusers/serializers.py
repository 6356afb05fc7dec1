from rest_framework import serializers

from identity_platform.api.fields import Boolean, Choice, EmailAddress, Identifier, Integer, QueryBoolean, Text
from identity_platform.api.json_field import JsonObject
from identity_platform.api.pagination import (
    LARGEST_PAGE,
    CursorField,
    NextCursorOut,
    PageQuery,
    PaginationOut,
    page_limit,
)
from userflow.accounts.models import LOCAL, LONGEST_EXTERNAL_ID
from userflow.accounts.serializers import Provider
from userflow.branding.texts import LANGUAGES
from userflow.signin.proof_fields import ProofFields


class EndUserFilters(serializers.Serializer[object]):
    tenant_id = Identifier()
    client_id = Identifier(required=False, help_text="Only users of this client.")
    email = Text(max_length=254, required=False, help_text="Part of the address, case-insensitive.")
    name = Text(max_length=255, required=False, help_text="Part of the name, case-insensitive.")
    provider = Text(max_length=63, required=False, help_text="Exact provider, case-insensitive.")
    external_id = Text(
        max_length=LONGEST_EXTERNAL_ID, required=False, help_text="Exact external id, case-sensitive: at most one user."
    )


class EndUserListQuery(CursorField, PageQuery, EndUserFilters):
    limit = page_limit(10)
    active = QueryBoolean(required=False, help_text="Only active or only inactive users; both if absent.")


class EndUserSearch(CursorField, EndUserFilters):
    page = Integer(required=False, default=1, min_value=1)
    limit = Integer(required=False, default=10, min_value=1)

    def validate_limit(self, value: int) -> int:
        """Reduce a larger value to the maximum."""
        return min(value, LARGEST_PAGE)


class EndUserSearchIn(EndUserSearch):
    active = Boolean(required=False, help_text="Only active or only inactive users; both if absent.")


class EndUserSearchByProjectIn(EndUserSearch):
    project_id = Text(max_length=64, required=False, help_text="Only users of clients of this project.")


class EndUserOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    email = serializers.CharField()
    name = serializers.CharField()
    active = serializers.BooleanField()
    provider = serializers.CharField()
    client_id = serializers.UUIDField(allow_null=True, help_text="Client of the user; null: the default client.")
    created_at = serializers.DateTimeField()
    last_login = serializers.DateTimeField(allow_null=True)


class EndUserDetailOut(EndUserOut):
    updated_at = serializers.DateTimeField()
    language = serializers.ChoiceField(LANGUAGES, allow_null=True)
    external_id = serializers.CharField(allow_null=True, help_text="Id of the user in another system, set by admins.")
    metadata = serializers.DictField(help_text="JSON object that the user can write too.")
    app_metadata = serializers.DictField(help_text="JSON object that admins write and the user can only read.")
    mfa_methods = serializers.ListField(child=serializers.CharField())
    roles = serializers.ListField(
        child=serializers.CharField(), help_text="Names of the roles, including those from groups."
    )
    groups = serializers.ListField(child=serializers.CharField(), help_text="Names of the groups.")


class EndUserListOut(NextCursorOut, PaginationOut):
    users = EndUserOut(many=True)


class RegistrationIn(serializers.Serializer[object]):
    tenant_id = Identifier()
    client_id = Identifier()
    email = EmailAddress()
    password = Text(max_length=1024, required=False, help_text="Required for the provider `local`.")
    name = Text(max_length=255, required=False, allow_blank=True)
    provider = Provider(
        max_length=63,
        required=False,
        default=LOCAL,
        help_text="Where the user is from. Another provider than `local` needs `endusers:write`.",
    )

    metadata = JsonObject(required=False, help_text="Needs `endusers:write`; ignored from others.")
    app_metadata = JsonObject(required=False, help_text="Needs `endusers:write`; ignored from others.")
    external_id = Text(
        max_length=LONGEST_EXTERNAL_ID, required=False, help_text="Needs `endusers:write`; ignored from others."
    )


class RegisteredEndUserOut(serializers.Serializer[object]):
    user_id = serializers.UUIDField()
    email = serializers.CharField()
    tenant_id = serializers.UUIDField()
    client_id = serializers.UUIDField()
    message = serializers.CharField()


class EndUserChanges(ProofFields):
    """What users can change of their own record."""

    name = Text(max_length=255, required=False, allow_blank=True)
    email = EmailAddress(
        required=False, help_text="New address; it can apply only once it is verified. One's own needs a proof."
    )
    language = Choice(
        LANGUAGES,
        required=False,
        allow_null=True,
        help_text="Language of hosted pages and mails; null: that of the browser or the tenant.",
    )
    metadata = JsonObject(required=False)

    def validate_language(self, value: str | None) -> str:
        """Return the value as it is stored."""
        return value or ""


class EndUserChangesByAdmins(EndUserChanges):
    app_metadata = JsonObject(
        required=False,
        help_text="JSON object that the user can read but not write; replaced as a whole. Ignored from the user.",
    )
    external_id = Text(
        max_length=LONGEST_EXTERNAL_ID,
        required=False,
        allow_null=True,
        help_text="Id in another system, unique in the tenant; null removes it. Ignored from the user.",
    )


class ChangedEndUserOut(serializers.Serializer[object]):
    user_id = serializers.UUIDField()
    email = serializers.CharField()
    name = serializers.CharField()
    updated_at = serializers.DateTimeField()
    message = serializers.CharField()


class EndUserStatusIn(serializers.Serializer[object]):
    active = Boolean(help_text="False: the user cannot sign in and all sessions end.")


class UserInTenantIn(serializers.Serializer[object]):
    tenant_id = Identifier()
    user_id = Identifier()


class EndUserActiveIn(UserInTenantIn):
    active = Boolean(help_text="False: the user cannot sign in and all sessions end.")


class ErasedUserOut(serializers.Serializer[object]):
    message = serializers.CharField()
    user_id = serializers.UUIDField()
    deleted = serializers.DictField(child=serializers.IntegerField())


class MappingQuery(serializers.Serializer[object]):
    tenant_id = Identifier()


class TenantDatabaseMappingOut(serializers.Serializer[object]):
    tenant_id = serializers.UUIDField()
    database_host = serializers.CharField()
    database_name = serializers.CharField()
    status = serializers.CharField(help_text="State of the tenant.")

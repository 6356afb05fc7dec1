from rest_framework import serializers

from identity_platform.api.fields import Choice, Items, Text

ALL, ANY = "all", "any"


class ScopeQuery(serializers.Serializer[object]):
    scope = Text(max_length=4096, help_text="One scope, or several separated by spaces; all are required.")

    def validate_scope(self, value: str) -> list[str]:
        scopes = list(dict.fromkeys(value.split()))
        if not scopes:
            raise serializers.ValidationError("Send at least one scope.")
        return scopes


class ResourceQuery(serializers.Serializer[object]):
    resource = Text(max_length=128, help_text="A resource (any action on it is enough) or resource:action.")


class PermissionCheckIn(serializers.Serializer[object]):
    permissions = Items(
        Text(max_length=128),
        most=100,
        allow_empty=False,
        help_text="Permissions to check, in the form `resource:action`.",
    )
    mode = Choice([ALL, ANY], required=False, default=ALL)


class TokenValidationOut(serializers.Serializer[object]):
    message = serializers.CharField()
    sub = serializers.UUIDField()
    kind = serializers.CharField()
    tenant_id = serializers.UUIDField(allow_null=True, help_text="Tenant of the caller; null for an operator.")
    client_id = serializers.UUIDField(allow_null=True, help_text="Client of the token; null for admin users.")
    roles = serializers.ListField(child=serializers.CharField())
    permissions = serializers.ListField(child=serializers.CharField())
    scopes = serializers.ListField(child=serializers.CharField(), help_text="The same as `permissions`.")
    groups = serializers.ListField(child=serializers.CharField())
    expires_at = serializers.DateTimeField(help_text="When the token expires.")


class ScopeCheckOut(serializers.Serializer[object]):
    message = serializers.CharField()
    required = serializers.ListField(  # type: ignore[assignment]  # a field of the response, not the flag of Field
        child=serializers.CharField()
    )
    held = serializers.ListField(child=serializers.CharField(), help_text="All permissions of the caller.")


class ResourceCheckOut(ScopeCheckOut):
    resource = serializers.CharField()
    actions = serializers.ListField(
        child=serializers.CharField(), help_text="Actions that the caller may perform on it."
    )


class PermissionCheckOut(ScopeCheckOut):
    mode = serializers.CharField()

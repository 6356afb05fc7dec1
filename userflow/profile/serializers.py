"""Serializers of profiles: one response for both kinds of users, each with the fields of its record."""

from rest_framework import serializers

from userflow.admins.serializers import AdminProfileChanges
from userflow.branding.texts import LANGUAGES
from userflow.endusers.serializers import EndUserChanges


class ProfileChanges(AdminProfileChanges, EndUserChanges):
    """The fields of both kinds of users. Those of the other kind are ignored."""


class ProfileOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    kind = serializers.CharField(help_text="operator, admin or end_user")
    tenant_id = serializers.UUIDField(allow_null=True, help_text="Tenant of the user; null for an operator.")
    email = serializers.CharField()
    active = serializers.BooleanField()
    roles = serializers.ListField(child=serializers.CharField())
    groups = serializers.ListField(child=serializers.CharField())
    permissions = serializers.ListField(child=serializers.CharField())
    mfa_methods = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    last_login = serializers.DateTimeField(allow_null=True)
    name = serializers.CharField(required=False, help_text="End users only: name shown to people.")
    provider = serializers.CharField(required=False, help_text="End users only: `local` has a password here.")
    client_id = serializers.UUIDField(
        required=False, allow_null=True, help_text="End users only; null: the default client."
    )
    language = serializers.ChoiceField(
        LANGUAGES, required=False, allow_null=True, help_text="End users only; null: that of the browser or the tenant."
    )
    external_id = serializers.CharField(
        required=False, allow_null=True, help_text="End users only: id in another system, set by admins."
    )
    metadata = serializers.DictField(required=False, help_text="End users only: JSON object.")
    app_metadata = serializers.DictField(
        required=False, help_text="End users only: JSON object that admins write and the user can only read."
    )
    username = serializers.CharField(required=False, help_text="Admin users only: name to sign in with.")
    first_name = serializers.CharField(required=False, help_text="Admin users only: first name.")
    last_name = serializers.CharField(required=False, help_text="Admin users only: last name.")

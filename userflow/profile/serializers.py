"""Serializers of profiles: one response for both kinds of users, each with the fields of its record."""

from rest_framework import serializers

from userflow.admins.serializers import AdminProfileChanges
from userflow.branding.texts import LANGUAGES
from userflow.endusers.serializers import EndUserChanges


class ProfileChanges(AdminProfileChanges, EndUserChanges):
    """All fields of both kinds of users, for the API document; each kind is validated by its own serializer."""


class ProfileOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    kind = serializers.CharField()
    tenant_id = serializers.UUIDField(allow_null=True)
    email = serializers.CharField()
    active = serializers.BooleanField()
    roles = serializers.ListField(child=serializers.CharField())
    groups = serializers.ListField(child=serializers.CharField())
    permissions = serializers.ListField(child=serializers.CharField())
    mfa_methods = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    last_login = serializers.DateTimeField(allow_null=True)
    name = serializers.CharField(required=False, help_text="End users.")
    provider = serializers.CharField(required=False, help_text="End users.")
    client_id = serializers.UUIDField(required=False, allow_null=True, help_text="End users.")
    language = serializers.ChoiceField(LANGUAGES, required=False, allow_null=True, help_text="End users.")
    metadata = serializers.DictField(required=False, help_text="End users.")
    username = serializers.CharField(required=False, help_text="Admin users.")
    first_name = serializers.CharField(required=False, help_text="Admin users.")
    last_name = serializers.CharField(required=False, help_text="Admin users.")

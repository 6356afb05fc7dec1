"""Bodies of the userinfo endpoint, and of introspection and revocation at a tenant's issuer."""

from rest_framework import serializers

from identity_platform.api.fields import Text
from userflow.branding.texts import LANGUAGES


class UserinfoIn(serializers.Serializer[object]):
    """RFC 6750 section 2.2."""

    access_token = Text(max_length=16384, required=False, help_text="Instead of the Authorization header.")


class UserinfoOut(serializers.Serializer[object]):
    """OpenID Connect Core section 5.3.2. Claims without a value are absent."""

    sub = serializers.UUIDField()
    name = serializers.CharField(required=False)
    locale = serializers.ChoiceField(LANGUAGES, required=False, help_text="The language that the user has chosen.")
    updated_at = serializers.IntegerField(required=False)
    email = serializers.CharField(required=False)
    email_verified = serializers.BooleanField(required=False)
    phone_number = serializers.CharField(required=False)
    phone_number_verified = serializers.BooleanField(required=False)
    groups = serializers.ListField(child=serializers.CharField(), required=False)
    roles = serializers.ListField(child=serializers.CharField(), required=False)

"""Requests and responses about users that several rooms have in common."""

from rest_framework import serializers

from identity_platform.api.fields import EmailAddress, Text
from userflow.accounts.sources import normalized_provider


class Provider(Text):
    """The name of a provider, as `sources` stores it."""

    def to_internal_value(self, data: object) -> str:
        return normalized_provider(super().to_internal_value(data))


class AdminEmailIn(serializers.Serializer[object]):
    email = EmailAddress()


class DeactivatedUserOut(serializers.Serializer[object]):
    message = serializers.CharField()
    user_id = serializers.UUIDField()
    active = serializers.BooleanField()


class UserStatusOut(DeactivatedUserOut):
    updated_at = serializers.DateTimeField()

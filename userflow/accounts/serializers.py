"""Requests and responses about users that several rooms have in common."""

from rest_framework import serializers

from identity_platform.api.fields import EmailAddress


class AdminEmailIn(serializers.Serializer[object]):
    email = EmailAddress()


class DeactivatedUserOut(serializers.Serializer[object]):
    message = serializers.CharField()
    user_id = serializers.UUIDField()
    active = serializers.BooleanField()


class UserStatusOut(DeactivatedUserOut):
    updated_at = serializers.DateTimeField()

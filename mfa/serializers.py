"""Shapes of the calls about factors of every kind."""

from typing import Any

from rest_framework import serializers

from identity_platform.api.fields import Identifier, Text


class FactorOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    kind = serializers.ChoiceField(choices=["webauthn", "totp", "sms"])
    name = serializers.CharField()
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    backed_up = serializers.BooleanField(required=False, help_text="Passkeys only.")


class FactorListOut(serializers.Serializer[Any]):
    factors = FactorOut(many=True)
    methods = serializers.ListField(child=serializers.CharField())
    backup_codes_remaining = serializers.IntegerField()


class FactorRemovedOut(serializers.Serializer[Any]):
    message = serializers.CharField()
    success = serializers.BooleanField()


class AdminFactorResetIn(serializers.Serializer[Any]):
    user_id = Identifier()
    reason = Text(max_length=500, trim=True, help_text="Kept in the audit trail.")


class FactorResetIn(AdminFactorResetIn):
    tenant_id = Identifier()


class FactorResetOut(serializers.Serializer[Any]):
    message = serializers.CharField()
    user_id = serializers.UUIDField()
    removed = serializers.DictField(child=serializers.IntegerField())

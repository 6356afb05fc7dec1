from rest_framework import serializers

from identity_platform.api.fields import Identifier, Text
from userflow.accounts.serializers import AdminEmailIn


class EnrollmentIn(serializers.Serializer[object]):
    """A request that enrolls a factor. Headers can have the ticket instead."""

    enrollment_ticket = Text(
        max_length=128, required=False, help_text="Enrollment ticket or pass, if not in the header X-Enrollment-Ticket."
    )


class AdminEnrollmentIn(AdminEmailIn, EnrollmentIn):
    """A request that enrolls a factor."""


class SuccessOut(serializers.Serializer[object]):
    message = serializers.CharField()
    success = serializers.BooleanField()


class FactorOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    kind = serializers.ChoiceField(choices=["webauthn", "totp", "sms"], help_text="webauthn is a passkey.")
    name = serializers.CharField(help_text="Name given by the user, or that of the model.")
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    backed_up = serializers.BooleanField(
        required=False, help_text="Passkeys only: whether it is backed up, such as to a cloud."
    )
    rp_id = serializers.CharField(
        required=False, allow_null=True, help_text="Passkeys only: the RP ID that can use it; null: the one in force."
    )


class PasskeyNameIn(serializers.Serializer[object]):
    name = Text(max_length=60, allow_blank=True, trim=True, help_text="New name; empty: that of the model.")


class FactorListOut(serializers.Serializer[object]):
    factors = FactorOut(many=True)
    methods = serializers.ListField(child=serializers.CharField())
    backup_codes_remaining = serializers.IntegerField()


class AdminFactorResetIn(serializers.Serializer[object]):
    user_id = Identifier()
    reason = Text(max_length=500, trim=True, help_text="Why, for the audit log.")


class FactorResetIn(AdminFactorResetIn):
    tenant_id = Identifier()


class FactorResetOut(serializers.Serializer[object]):
    message = serializers.CharField()
    user_id = serializers.UUIDField()
    removed = serializers.DictField(child=serializers.IntegerField())


class AdminEnrollmentPassIn(AdminFactorResetIn):
    delivery = serializers.ChoiceField(
        choices=["mail", "show"],
        help_text="mail: only the user receives the pass. show: the response contains it, once, and the user is told.",
    )


class EnrollmentPassIn(AdminEnrollmentPassIn):
    tenant_id = Identifier()


class EnrollmentPassOut(serializers.Serializer[object]):
    message = serializers.CharField()
    user_id = serializers.UUIDField()
    expires_at = serializers.DateTimeField()
    enrollment_pass = serializers.CharField(
        required=False, help_text="The pass, with `delivery: show`; shown only now."
    )

"""Request and response bodies of step-up."""

from rest_framework import serializers

from identity_platform.api.fields import Text
from userflow.signin.proof_fields import FactorProofFields


class StepUpIn(FactorProofFields):
    """Exactly one of the fields."""

    password = Text(max_length=1024, required=False, help_text="Only of a user who has no second factor.")


class StepUpOut(serializers.Serializer[object]):
    access_token = serializers.CharField(help_text="Of the same session; its refresh token stays valid.")
    token_type = serializers.CharField()
    expires_in = serializers.IntegerField()
    proof_token = serializers.CharField(help_text="Proves one later request of this session.")
    proof_expires_in = serializers.IntegerField()
    acr = serializers.CharField(help_text="aal1 or aal2.")
    amr = serializers.ListField(child=serializers.CharField(), help_text="RFC 8176.")
    auth_time = serializers.IntegerField(help_text="Seconds since 1970.")

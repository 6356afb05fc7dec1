from rest_framework import serializers

from identity_platform.api.fields import EmailAddress, Identifier, Text
from userflow.signin.proof_fields import ProofFields


class PasswordChangeIn(ProofFields):
    new_password = Text(max_length=1024)


class ForgotPasswordIn(serializers.Serializer[object]):
    any_of = (("client_id",), ("tenant_id",))
    email = EmailAddress()
    client_id = Identifier(required=False, help_text="A client of the tenant. Required without `tenant_id`.")
    tenant_id = Identifier(required=False, help_text="Tenant of the user. Required without `client_id`.")

    def validate(self, attrs: dict[str, object]) -> dict[str, object]:
        if "client_id" not in attrs and "tenant_id" not in attrs:
            raise serializers.ValidationError({"client_id": ["Send `client_id` or `tenant_id`."]})
        return attrs


class AdminPasswordResetIn(serializers.Serializer[object]):
    token = Text(max_length=255, help_text="From the link in the mail.")
    password = Text(max_length=1024)


class PasswordResetIn(AdminPasswordResetIn):
    tenant_id = Identifier(required=False, help_text="If sent, must be the token's tenant.")

from rest_framework import serializers

from identity_platform.api.fields import EmailAddress, Identifier, Text


class VerifyEmailIn(serializers.Serializer[object]):
    """A token alone, or tenant, address and code."""

    any_of = (("token",), ("tenant_id", "email", "code"))
    token = Text(max_length=128, required=False, help_text="From the link in the mail.")
    tenant_id = Identifier(required=False, help_text="With `code`: tenant of the user.")
    email = EmailAddress(required=False, help_text="With `code`: the address to verify.")
    code = Text(max_length=32, required=False, help_text="The six digits from the mail.")
    user_id = Identifier(
        required=False,
        help_text="With `code`: the id that the registration returned. Only its code counts, with attempts of its own.",
    )
    current_password = Text(
        max_length=1024,
        required=False,
        help_text="Keeps what was set up before the first verification, like a Bearer token or an enrollment ticket.",
    )

    def validate(self, attrs: dict[str, object]) -> dict[str, object]:
        if "token" not in attrs:
            missing = [name for name in ("tenant_id", "email", "code") if name not in attrs]
            if missing:
                raise serializers.ValidationError(
                    {name: ["Send `token`, or `tenant_id`, `email` and `code`."] for name in missing}
                )
        return attrs


class UndoEmailChangeIn(serializers.Serializer[object]):
    token = Text(max_length=128, help_text="From the link in the mail.")


class UndoneEmailChangeOut(serializers.Serializer[object]):
    message = serializers.CharField()
    user_id = serializers.UUIDField()
    email = serializers.CharField()


class VerifiedEmailOut(UndoneEmailChangeOut):
    verified = serializers.BooleanField()


class ResendEmailVerificationIn(serializers.Serializer[object]):
    tenant_id = Identifier()
    email = EmailAddress()
    user_id = Identifier(
        required=False, help_text="The id that the registration returned: only its mail is sent again."
    )

from rest_framework import serializers

from identity_platform.api.fields import EmailAddress, Identifier, Text
from mfa.serializers import EnrollmentIn, SuccessOut
from mfa.totp.serializers import COMPLETES, LoginTokens
from userflow.signin.proof_fields import ProofFields, SixDigits


class SmsUser(serializers.Serializer[object]):
    client_id = Identifier()
    email = EmailAddress()
    tenant_id = Identifier()


class SmsSetup(SmsUser, EnrollmentIn):
    phone_number = Text(max_length=32, help_text="E.164: plus sign, country code, digits.")


class SmsConfirm(SmsSetup, ProofFields):
    """The fields of a proof are for an access token; `code` is that of the new phone."""

    code = SixDigits(help_text="Six digits from the message to the new phone.")
    mfa_token = Text(max_length=256, required=False, help_text=COMPLETES)


class SmsCode(SmsUser):
    mfa_token = Text(max_length=256, required=False, help_text="Ticket of the login that waits for the code.")


class SmsVerify(SmsCode):
    code = SixDigits(help_text="Six digits from the message.")


class SentSmsCodeOut(SuccessOut):
    attempts_remaining = serializers.IntegerField()
    expires_in_minutes = serializers.IntegerField()
    phone_display = serializers.CharField()


class SmsConfirmationOut(SuccessOut, LoginTokens):
    phone_display = serializers.CharField()


class SmsVerificationOut(SuccessOut, LoginTokens):
    email = serializers.CharField()
    method = serializers.CharField(help_text="Always sms.")
    tenant_id = serializers.UUIDField()

from rest_framework import serializers

from identity_platform.api.fields import Identifier, Text
from mfa.serializers import AdminEnrollmentIn, EnrollmentIn, SuccessOut
from mfa.totp import backup_codes
from userflow.accounts.serializers import AdminEmailIn
from userflow.signin.proof_fields import ProofFields, SixDigits

COMPLETES = "Ticket of the login that must enroll first: the new factor completes it."


class BackupCodeText(Text):
    """A backup code, with or without dashes and blanks and in any case; validated to its normalised form.

    One of the wrong form is a bad request (400), not an attempt.
    """

    default_error_messages = {"invalid": "Send a backup code as xxxx-xxxx-xxxx-xxxx."}

    def to_internal_value(self, data: object) -> str:
        code = backup_codes.normalised(data) if isinstance(data, str) else None
        if code is None:
            self.fail("invalid")
        return code

    def openapi(self) -> dict[str, object]:
        return {"type": "string", "pattern": "^[0-9A-TV-Za-tv-z]{4}(-?[0-9A-TV-Za-tv-z]{4}){3}$"}


class TotpBegin(AdminEmailIn):
    tenant_id = Identifier()
    client_id = Identifier(required=False)


class TotpSetup(TotpBegin, EnrollmentIn):
    """A request that enrolls a factor."""


class AdminTotpDisable(AdminEmailIn, ProofFields):
    pass


class TotpDisable(TotpBegin, ProofFields):
    pass


class AdminTotpConfirm(AdminEnrollmentIn, ProofFields):
    """The fields of a proof are for an access token; `code` is that of the new authenticator."""

    code = SixDigits(help_text="Six digits from the new authenticator.")
    secret = Text(max_length=128, help_text="From beginSetup.")
    mfa_token = Text(max_length=256, required=False, help_text=COMPLETES)


class TotpConfirm(AdminTotpConfirm):
    tenant_id = Identifier()
    client_id = Identifier(required=False)


class AdminTotpVerify(AdminEmailIn):
    any_of = (("code",), ("backup_code",))
    code = SixDigits(required=False, help_text="Six digits from the authenticator app.")
    backup_code = BackupCodeText(required=False, help_text="One of the ten backup codes, if there is no `code`.")

    def validate(self, attrs: dict[str, object]) -> dict[str, object]:
        if "code" not in attrs and "backup_code" not in attrs:
            raise serializers.ValidationError({"code": ["Send a code or a backup_code."]})
        return attrs


class TotpVerify(AdminTotpVerify):
    tenant_id = Identifier()
    client_id = Identifier(required=False)


class AdminTotpVerifyLogin(AdminTotpVerify):
    mfa_token = Text(max_length=256, required=False, help_text="Ticket of the login that waits for this step.")


class TotpVerifyLogin(AdminTotpVerifyLogin):
    tenant_id = Identifier()
    client_id = Identifier(required=False)


class LoginTokens(serializers.Serializer[object]):
    """With `mfa_token` in the request, the tokens of the sign-in are here."""

    access_token = serializers.CharField(required=False)
    refresh_token = serializers.CharField(required=False)
    token_type = serializers.CharField(required=False)
    expires_in = serializers.IntegerField(required=False)


class TotpSetupOut(serializers.Serializer[object]):
    account = serializers.CharField()
    issuer = serializers.CharField(help_text="Name of the issuer that the app shows.")
    manual_entry = serializers.CharField(help_text="The secret in groups of four.")
    otp_auth_url = serializers.CharField()
    qr_code = serializers.CharField(help_text="PNG in base64 of exactly otp_auth_url.")
    secret = serializers.CharField(help_text="The secret in base32.")


class NewBackupCodesOut(SuccessOut):
    backup_codes = serializers.ListField(child=serializers.CharField())


class TotpConfirmationOut(LoginTokens, NewBackupCodesOut):
    """The backup codes, and with `mfa_token` the login's tokens."""


class AdminTotpVerificationOut(SuccessOut, LoginTokens):
    email = serializers.CharField()
    method = serializers.ChoiceField(choices=["totp", "backup_code"])


class TotpVerificationOut(AdminTotpVerificationOut):
    tenant_id = serializers.UUIDField()

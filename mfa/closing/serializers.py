"""Shapes of closing an account."""

from typing import Any

from rest_framework import serializers

from identity_platform.api.fields import Text
from mfa.fields import BackupCodeText, SixDigits
from mfa.proofs import PROOFS
from mfa.webauthn.serializers import PublicKeyCredential


class AccountClosingIn(serializers.Serializer[Any]):
    """One of the fields; the first that is present counts."""

    current_password = Text(max_length=1024, required=False)
    code = SixDigits(required=False, help_text="From the authenticator app.")
    backup_code = BackupCodeText(required=False)
    sms_code = SixDigits(required=False, help_text="From /webauthn/sms/requestCode.")
    response = PublicKeyCredential(required=False, help_text="Answer to /webauthn/enduser/beginAuthentication.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs:
            raise serializers.ValidationError({"current_password": [f"Send one of {', '.join(PROOFS)}."]})
        return attrs

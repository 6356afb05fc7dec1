"""Serializer fields of codes. A code of the wrong form is a bad request (400), not an attempt."""

from identity_platform.api.fields import Text
from mfa.totp import backup_codes
from userflow.signin.proof_fields import SixDigits

__all__ = ["BackupCodeText", "SixDigits"]


class BackupCodeText(Text):
    """A backup code, with or without dashes and in any case; validated to its normalised form."""

    default_error_messages = {"invalid": "Send a backup code as xxxx-xxxx-xxxx-xxxx."}

    def to_internal_value(self, data: object) -> str:
        code = backup_codes.normalised(data) if isinstance(data, str) else None
        if code is None:
            self.fail("invalid")
        return code

    def openapi(self) -> dict[str, object]:
        return {"type": "string", "pattern": "^[0-9A-TV-Za-tv-z]{4}(-?[0-9A-TV-Za-tv-z]{4}){3}$"}

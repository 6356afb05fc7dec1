"""Re-exports the rooms' models so that Django finds them."""

from mfa.push.models import PushAuthenticationRequest, PushDevice
from mfa.sms.models import Phone, SmsCode, SmsMessage
from mfa.totp.models import AdminBackupCode, AdminTotpSecret, EndUserBackupCode, EndUserTotpSecret
from mfa.webauthn.models import AdminChallenge, AdminPasskey, EndUserChallenge, EndUserPasskey

__all__ = [
    "AdminBackupCode",
    "AdminChallenge",
    "AdminPasskey",
    "AdminTotpSecret",
    "EndUserBackupCode",
    "EndUserChallenge",
    "EndUserPasskey",
    "EndUserTotpSecret",
    "Phone",
    "PushAuthenticationRequest",
    "PushDevice",
    "SmsCode",
    "SmsMessage",
]

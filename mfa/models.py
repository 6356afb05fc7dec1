"""Imports the rooms' models so that Django finds them."""

from mfa.push import models as push
from mfa.sms import models as sms
from mfa.totp import models as totp
from mfa.webauthn import models as webauthn

__all__ = ["push", "sms", "totp", "webauthn"]

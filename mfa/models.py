"""Re-exports the rooms' models so that Django finds them."""

from mfa.webauthn.models import AdminChallenge, AdminPasskey, EndUserChallenge, EndUserPasskey

__all__ = [
    "AdminChallenge",
    "AdminPasskey",
    "EndUserChallenge",
    "EndUserPasskey",
]

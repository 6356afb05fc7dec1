"""Assurance level and lifetime of sessions, and the level that the policy in force requires.

Pure functions of the platform's and the tenant's settings. Sign-in, refresh, every use of a token and the console call
them, so a changed limit or policy takes effect at the next use. Sources: NIST SP 800-63B-4 (sections 2.1 to 2.3 and
5), RFC 9470, RFC 8176.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from django.conf import settings

from userflow.accounts import principals

# Authentication context class references of our tokens (`acr`): one factor; two factors or a user-verified passkey.
AAL1: Final = "aal1"
AAL2: Final = "aal2"
# RFC 8176 section 2: a one-time password, a message by SMS, proof of possession of a key.
SECOND_FACTORS: Final = frozenset({"otp", "sms", "pop"})
# `mfa`: several factors in one step, which is a passkey whose authenticator has verified its user.
MULTI_FACTOR: Final = "mfa"


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Seconds without use after which a session ends, and seconds after which it ends in any case."""

    idle: int
    absolute: int

    def allow(self, *, age: float, unused: float) -> bool:
        """Return whether a session of this age, unused for `unused` seconds, is within both limits."""
        return age <= self.absolute and unused <= self.idle


def acr_of(amr: Iterable[str]) -> str:
    """Return the assurance level of these authentication methods (RFC 8176)."""
    methods = set(amr)
    return AAL2 if MULTI_FACTOR in methods or ("pwd" in methods and methods & SECOND_FACTORS) else AAL1


def session_limits(kind: str, tenant_settings: Mapping[str, object]) -> SessionLimits:
    """Return the limits now in force for sessions of this kind of principal. A tenant can only shorten them."""
    match kind:
        case principals.OPERATOR:
            return SessionLimits(settings.OPERATOR_SESSION_IDLE_SECONDS, settings.OPERATOR_SESSION_SECONDS)
        case principals.ADMIN:
            idle, absolute = settings.ADMIN_SESSION_IDLE_SECONDS, settings.ADMIN_SESSION_SECONDS
            setting_names = ("admin_session_idle_seconds", "admin_session_seconds")
        case _:
            idle, absolute = settings.REFRESH_TOKEN_SECONDS, settings.SESSION_SECONDS
            setting_names = ("refresh_token_seconds", "session_seconds")
    return SessionLimits(
        min(idle, int(str(tenant_settings.get(setting_names[0], idle)))),
        min(absolute, int(str(tenant_settings.get(setting_names[1], absolute)))),
    )


def required_acr(kind: str, tenant_settings: Mapping[str, object]) -> str:
    """Return the assurance level that the policy now in force requires for this kind of principal."""
    if kind == principals.CLIENT:
        return AAL1
    if kind == principals.OPERATOR:
        return AAL2 if settings.OPERATORS_REQUIRE_FACTOR else AAL1
    return AAL2 if tenant_settings.get("mfa_policy") == "required" else AAL1

"""What a session must have proven before a sensitive action."""

from collections.abc import Sequence
from typing import Final

from userflow.errors import InsufficientAuthentication
from userflow.principals import Principal

# How a second step is recorded in `amr` (RFC 8176; `mfa` names the same values).
FACTORS: Final = frozenset({"otp", "pop", "sms"})


def has_second_factor(amr: Sequence[str]) -> bool:
    """Whether a sign-in by these methods included a second factor."""
    return not FACTORS.isdisjoint(amr)


def require_assurance(principal: Principal) -> None:
    """Raise InsufficientAuthentication (401) unless the session can be trusted with a sensitive action.

    The sign-in is at most 15 minutes old. A user who has a factor has proven it in this session: a session from before
    the first factor was enrolled does not count.
    """
    has_factor = bool(principal.user.get("mfa_methods"))
    if not principal.is_fresh() or (has_factor and not has_second_factor(principal.amr)):
        raise InsufficientAuthentication

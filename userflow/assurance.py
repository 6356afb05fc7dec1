"""What a session must have proven before a sensitive action."""

from userflow.errors import InsufficientAuthentication
from userflow.principals import Principal
from userflow.session_policy import AAL2


def require_assurance(principal: Principal) -> None:
    """Raise InsufficientAuthentication (401) unless the session can be trusted with a sensitive action.

    The sign-in is at most 15 minutes old. A user who has a factor has proven it in this session: a session from before
    the first factor was enrolled does not count.
    """
    has_factor = bool(principal.user.get("mfa_methods"))
    if not principal.is_fresh() or (has_factor and principal.acr != AAL2):
        raise InsufficientAuthentication

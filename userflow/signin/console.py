"""What the console's sign-in has beside the API's: its rules for passwords, and sessions without tokens."""

from datetime import datetime, timedelta

from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.utils.timezone import now

from userflow.admins.models import AdminUser
from userflow.errors import WeakPassword
from userflow.realms import ADMINS
from userflow.signin import passwords
from userflow.tokens.issue import TokenPair


class PasswordRules:
    """The API's rules for new passwords, where Django asks for them: its own commands and the console's forms."""

    def validate(self, password: str, user: AbstractBaseUser | None = None) -> None:
        """Raise Django's ValidationError for what the API refuses with WeakPassword."""
        personal = (user.username, user.email) if isinstance(user, AdminUser) else ()
        try:
            passwords.check_strength(password, personal=personal)
        except WeakPassword as refusal:
            raise ValidationError((refusal.details or {})["password"]) from refusal

    def get_help_text(self) -> str:
        """What forms say before anything is typed."""
        return f"At least {passwords.SHORTEST} characters, and none of the common passwords."


def keep_for_console(opened: TokenPair, *, user: AdminUser, lasting: timedelta) -> datetime:
    """Make a session of the console of what a sign-in has opened; gives when it ends at the latest.

    Its tokens were seen by nobody and are thrown away, so it can be used from the console only. It stands in the lists
    of sessions and ends with them, as any other one.
    """
    ends = now() + lasting
    with ADMINS.atomic():
        ADMINS.refresh_tokens._default_manager.filter(session_id=opened.session_id).delete()
        ADMINS.sessions._default_manager.filter(pk=opened.session_id).update(expires_at=ends)
        ADMINS.record(
            "console.signed_in",
            target=("user", user.pk),
            tenant_id=user.tenant_id,
            details={"session_id": str(opened.session_id)},
        )
    return ends

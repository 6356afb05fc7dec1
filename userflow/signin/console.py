"""Sign-in of the console: password validation in Django's forms, and the use of its sessions."""

from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.utils.timezone import now

from tenants.entering import lookup
from userflow.accounts.models import AdminUser
from userflow.accounts.principals import Principal
from userflow.accounts.realms import ADMINS
from userflow.accounts.session_policy import session_limits
from userflow.credentials import passwords
from userflow.errors import WeakPassword
from userflow.sessions.issue import note_session_use


class PasswordRules:
    """The API's rules for new passwords, for Django's commands and the console's forms."""

    def validate(self, password: str, user: AbstractBaseUser | None = None) -> None:
        """Raise Django's ValidationError where the API raises WeakPassword."""
        personal = (user.username, user.email) if isinstance(user, AdminUser) else ()
        try:
            passwords.check_strength(password, personal=personal)
        except WeakPassword as error:
            raise ValidationError([*error.messages["password"]]) from error

    def get_help_text(self) -> str:
        return f"At least {passwords.SHORTEST} characters, and none of the common passwords."


def note_console_use(principal: Principal) -> None:
    """Extend the idle limit of a console session that was just used, as a refresh does for the API."""
    assert principal.session_id is not None  # an admin user signs in with a session
    tenant_settings = lookup.find(principal.tenant_id).settings if principal.tenant_id else {}
    note_session_use(ADMINS, principal.session_id, session_limits(principal.kind, tenant_settings), now())

"""Messages that the next page shows once."""

from typing import Final

from django.utils.translation import gettext_lazy as _

NOTICES: Final = {
    "password_changed": _("Your new password is saved. Sign in with it."),
    "signed_out": _("You are signed out."),
    "expired": _("The sign-in took too long or had too many wrong codes. Sign in again."),
    "email_verified": _("Your e-mail address is verified."),
    "code_sent": _("We have sent you a new code."),
    "mail_sent": _("If this address needs verification, a new mail is on its way."),
    "locked_out": _("Your session has ended. Sign in again."),
}

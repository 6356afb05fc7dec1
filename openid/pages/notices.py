"""Messages that the next page shows once."""

from typing import Final

from django.utils.translation import gettext_lazy as _

NOTICES: Final = {
    "password_changed": _("Your new password is saved. Sign in with it."),
    "saved": _("Your changes are saved."),
    "email_asked": _("We have sent a mail to the new address. Open the link in it."),
    "email_kept": _("Your e-mail address stays as it is. A change that was not verified yet is cancelled."),
    "password_saved": _("Your new password is saved. All your other devices are signed out."),
    "factor_removed": _("You no longer sign in this way."),
    "device_signed_out": _("Signed out there."),
    "device_forgotten": _("That browser asks for your second step again."),
    "disconnected": _("The application no longer has access to your account."),
    "account_deleted": _("Your account is deleted."),
    "signed_out": _("You are signed out."),
    "expired": _("The sign-in took too long or had too many wrong codes. Sign in again."),
    "email_verified": _("Your e-mail address is verified."),
    "code_sent": _("We have sent you a new code."),
    "mail_sent": _("If this address needs verification, a new mail is on its way."),
    "factor_added": _("Your new way to sign in is ready."),
}

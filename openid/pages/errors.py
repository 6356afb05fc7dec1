"""Errors of the hosted pages, and the texts of the actions' errors for end users."""

import re
from typing import TYPE_CHECKING, Final

from django import forms
from django.utils.html import format_html
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from identity_platform.api.errors import ApiError, NotAllowed, NotFound, ServerFault, TooManyRequests, Unavailable
from mfa.errors import (
    LastFactor,
    NoPasskey,
    NoProof,
    NoRelyingParty,
    PasskeyNeedsPassword,
    PasskeyRejected,
    PasskeysElsewhere,
    PhoneRejected,
    PhoneTaken,
    SecretNotIssued,
)
from openid.errors import AuthorizationRejected, LogoutRejected, RequestExpired, TenantMoved
from openid.pages.times import local_time
from tenants.errors import MaintenanceMode, ReadOnlyMode, TenantBusy, TenantSuspended, UnknownTenant
from userflow.errors import (
    AttemptsExceeded,
    CodeExpired,
    EmailNotVerified,
    EmailProofInvalid,
    EmailTaken,
    EmailUndoInvalid,
    InsufficientAuthentication,
    InvalidCode,
    InvitationInvalid,
    NoPasswordHere,
    NotSignedInByTicket,
    PasskeyNotVerified,
    ProofTooNew,
    RegistrationClosed,
    ResetTokenInvalid,
    WrongCredentials,
    WrongCurrentPassword,
)

if TYPE_CHECKING:
    from django_stubs_ext import StrPromise

_NUMBER: Final = re.compile("[0-9]+")


class FormExpired(NotAllowed):
    """403: the form was rendered for another browser or another session, or the browser takes no cookies."""

    code = "form_expired"
    message = "This form has expired. Open the page again."


class SignedInElsewhere(FormExpired):
    """403: another tab of the browser has signed in since the form was rendered."""


class SignedOutElsewhere(FormExpired):
    """403: the session that the form was rendered for has ended, or another tab of the browser has signed out."""


class OtherAccount(FormExpired):
    """403: another tab of the browser has gone on with another account in the journey of the form."""


class RequestOfOtherBrowser(RequestExpired):
    """400: the authorization request is one of another browser, or this one accepts no cookies."""


class RequestMissing(NotFound):
    """404: the page belongs to a sign-in that this browser has not begun, or that has expired."""

    code = "sign_in_request_missing"
    message = "This sign-in has expired."


class WrongOrUnverified(WrongCredentials):
    """401: the text where the tenant requires verified addresses. A right password of an unverified one gets it too."""


# The application has caused them: their own text is for its developers, who find it folded below that for users.
OF_APPLICATIONS: Final = (AuthorizationRejected, LogoutRejected)

# The first one whose class the error has.
_TEXTS: Final[tuple[tuple[type[ApiError] | tuple[type[ApiError], ...], "StrPromise"], ...]] = (
    (
        WrongOrUnverified,
        _(
            "The e-mail address or password is incorrect, or the address is not verified yet. Check both, or use the"
            " newest mail that we have sent you."
        ),
    ),
    (WrongCredentials, _("The e-mail address or password is incorrect. Check both and try again.")),
    (WrongCurrentPassword, _("This is not your current password.")),
    (EmailNotVerified, _("Verify your e-mail address first. We have sent you a mail with a link and a code.")),
    ((NotSignedInByTicket, NoProof), _("The sign-in took too long or had too many wrong codes. Sign in again.")),
    (InsufficientAuthentication, _("Confirm again that it is you: open the page again.")),
    ((InvalidCode, AttemptsExceeded), _("The code is incorrect or was already used. Enter the newest code.")),
    (
        ProofTooNew,
        _("This is newer than your sign-in here and does not count yet. Use an older method, or sign in again."),
    ),
    (CodeExpired, _("The code has expired. Request a new one.")),
    (
        PasskeyNeedsPassword,
        _("Sign in once with your password and this passkey. After that the passkey alone is enough."),
    ),
    (
        PasskeysElsewhere,
        _("Your passkeys were created at another address of this service and do not work here at the moment."),
    ),
    ((PasskeyNotVerified, NoPasskey), _("The passkey was not accepted. Try again, or use another method.")),
    (PasskeyRejected, _("The passkey could not be added. Try again.")),
    (NoRelyingParty, _("Passkeys are not available here. Use another method.")),
    (SecretNotIssued, _("The setup expired after ten minutes. Scan the new code.")),
    (LastFactor, _("You need a second factor here. Add another one before you remove this one.")),
    (PhoneTaken, _("This number belongs to another account.")),
    (
        PhoneRejected,
        _("This number cannot receive codes. Enter a mobile number that begins with + and the country code."),
    ),
    (EmailTaken, _("There is already an account with this e-mail address. Sign in instead.")),
    (RegistrationClosed, _("You cannot create an account yourself here. Ask for an invitation.")),
    ((ResetTokenInvalid, EmailProofInvalid), _("This link or code is invalid or has expired. Request a new one.")),
    (EmailUndoInvalid, _("This link is invalid or has expired, or it was used before.")),
    (InvitationInvalid, _("This invitation is invalid or has expired. Ask for a new one.")),
    (NoPasswordHere, _("Your account has no password here. Sign in the way you did before.")),
    (
        SignedInElsewhere,
        _(
            "You have signed in in another tab of this browser since this page was opened, perhaps with another account."
            " Nothing was changed. Open the page again to go on."
        ),
    ),
    (
        SignedOutElsewhere,
        _(
            "You have signed out in another tab of this browser since this page was opened, or your session has ended."
            " Nothing was changed. Open the page again to go on."
        ),
    ),
    (
        OtherAccount,
        _(
            "You have gone on with another account in another tab of this browser since this page was opened. Nothing was"
            " changed. Open the page again to go on."
        ),
    ),
    (FormExpired, _("This page was open for too long, or your browser does not accept cookies. Open it again.")),
    (
        RequestOfOtherBrowser,
        _(
            "This sign-in was begun in another browser, or your browser does not accept cookies. Allow cookies for this"
            " site, then go back to the application and sign in again."
        ),
    ),
    (RequestMissing, _("This sign-in has expired. Go back to the application and sign in again.")),
    (TenantSuspended, _("Signing in is paused here at the moment. Ask the people who run this service.")),
    (TenantMoved, _("The sign-in has moved to another address. Go back to the application and sign in again.")),
    (UnknownTenant, _("There is no sign-in page at this address. Check the address.")),
    ((TenantBusy, Unavailable), _("The service is busy at the moment. Try again in a minute.")),
    (ServerFault, _("Something went wrong on our side. Try again in a minute.")),
    (NotFound, _("There is no page at this address.")),
    (
        OF_APPLICATIONS,
        _(
            "The application has sent a request that cannot be answered. Go back to the application and try again. If it"
            " happens again, tell the people who run the application."
        ),
    ),
)


def in_words(error: ApiError) -> str:
    """Return the error as a text that says what to do next; as HTML if it names a time."""
    if isinstance(error, TooManyRequests):
        minutes = max(1, -(-int(error.headers.get("Retry-After", "60")) // 60))
        return ngettext(
            "Too many attempts. Wait %(minutes)s minute, then try again.",
            "Too many attempts. Wait %(minutes)s minutes, then try again.",
            minutes,
        ) % {"minutes": minutes}
    if isinstance(error, ReadOnlyMode):
        return _mode_in_words(error)
    text = next((text for kinds, text in _TEXTS if isinstance(error, kinds)), None)
    return in_language(error.text) if text is None else str(text)


def _mode_in_words(error: ReadOnlyMode) -> str:
    """Return what a mode means for the user, with the announced end."""
    closed = isinstance(error, MaintenanceMode)
    if error.until is None:
        return (
            gettext("The service is closed for maintenance at the moment. Try again later.")
            if closed
            else gettext("Changes and new sign-ins are paused for maintenance at the moment. Try again later.")
        )
    text = (
        gettext("The service is closed for maintenance until about %(until)s. Try again then.")
        if closed
        else gettext("Changes and new sign-ins are paused for maintenance until about %(until)s. Try again then.")
    )
    before, _placeholder, after = text.partition("%(until)s")
    return format_html("{}{}{}", before, local_time(error.until), after)


def title_of(error: ApiError) -> str:
    """Return the title of the error page."""
    return gettext("Maintenance") if isinstance(error, ReadOnlyMode) else gettext("That did not work")


def in_language(message: str) -> str:
    """Return a message of the API in the language of the page. In the catalogues `%s` stands for a number that varies."""
    translated = gettext(message)
    if translated != message:
        return translated
    general = _NUMBER.sub("%s", message)
    translated = gettext(general)
    return message if translated == general else translated % tuple(_NUMBER.findall(message))


def status_of(error: ApiError) -> int:
    """Return 400 instead of 401, which would require a WWW-Authenticate header."""
    return 400 if error.status == 401 else error.status


def add_to(form: forms.Form, error: ApiError) -> None:
    """Show an error at the fields that it names, else above the form."""
    placed = False
    for name, problems in error.messages.items():
        if name in form.fields:
            form.add_error(name, [in_language(problem) for problem in problems])
            placed = True
    if not placed:
        form.add_error(None, in_words(error))

"""Error texts of the sign-in: they say what to do next, and never which of two secrets was wrong."""

from collections.abc import Mapping

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from identity_platform.api.errors import ApiError, TooManyRequests, Unavailable
from identity_platform.api.handlers import note_rejection
from tenants.errors import TenantBusy, TenantSuspended
from userflow.errors import (
    InvalidCode,
    NotSignedInByTicket,
    PasskeyNotVerified,
    ProofTooNew,
    WrongCredentials,
    WrongCurrentPassword,
)


def in_words(error: ApiError) -> str:
    """Return the error as text for a page, including the time to wait."""
    match error:
        case TooManyRequests():
            minutes = max(1, -(-int(error.headers.get("Retry-After", "60")) // 60))
            return ngettext(
                "Too many attempts. Wait %(minutes)s minute, then try again.",
                "Too many attempts. Wait %(minutes)s minutes, then try again.",
                minutes,
            ) % {"minutes": minutes}
        case WrongCredentials():
            return _(
                "The username or password is incorrect. Try again. If it still fails, use “Forgot password?”, or ask an "
                "operator whether you may sign in."
            )
        case WrongCurrentPassword():
            return _("The current password is incorrect.")
        case NotSignedInByTicket():
            return _("This sign-in has expired or had too many wrong codes. Sign in again with your password.")
        case InvalidCode():
            return _("The code is incorrect or was already used. Wait for the next one and try again.")
        case ProofTooNew():
            return _("This is newer than your sign-in and does not count yet. Use an older factor, or sign in again.")
        case PasskeyNotVerified():
            return _("The passkey was not accepted. Try again with a passkey that you enrolled here.")
        case TenantSuspended():
            return _("Your tenant is suspended. Contact the operator of this platform.")
        case TenantBusy() | Unavailable():
            return _("The platform is busy at the moment. Try again in a minute.")
        case _:
            return error.text


def status_of(error: ApiError) -> int:
    """Return 400 instead of 401, which would require a WWW-Authenticate header."""
    return 400 if error.status == 401 else error.status


def add_to(form: forms.Form, error: ApiError) -> None:
    """Show an error at the fields that it names, else above the form."""
    placed = False
    for name, problems in error.messages.items():
        if name in form.fields:
            form.add_error(name, [*problems])
            placed = True
    if not placed:
        form.add_error(None, in_words(error))


def page(
    request: HttpRequest,
    template: str,
    context: Mapping[str, object],
    *,
    status: int | None = None,
    error: ApiError | None = None,
) -> HttpResponse:
    """Return a page that is not cached, with the status and the Retry-After header of the error.

    Unless stated, the status is 400 for a form that was sent: a valid one is answered by a redirect.
    """
    status = status_of(error) if error else status or (400 if request.method == "POST" else 200)
    response = TemplateResponse(request, template, {**admin.site.each_context(request), **context}, status=status)
    response.headers["Cache-Control"] = "no-store"
    if error is not None:
        note_rejection(request, error)
        if "Retry-After" in error.headers:
            response.headers["Retry-After"] = error.headers["Retry-After"]
    return response


def expired_form(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Return the page for a form with the token of another session, in place of Django's (CSRF_FAILURE_VIEW)."""
    context = {
        "title": _("This form has expired"),
        "again": request.get_full_path(),
        "reference": getattr(request, "request_id", ""),
    }
    return page(request, "console/signin/expired_form.html", context, status=403)

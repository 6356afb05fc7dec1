"""A form of the console that a browser sends twice is processed once, and gets the first response again.

Outside the middlewares of sessions, CSRF tokens and messages, so that the response has all cookies.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, resolve

from identity_platform.api.repeated_forms import form_key, respond_once

if TYPE_CHECKING:
    from console.frame.access import Page

_EXEMPT: Final = "processed_each_time"
# Django masks the browser's CSRF token differently for each page: the masked token stands for the page that was rendered.
_FORM_TOKEN: Final = "csrfmiddlewaretoken"


def processed_each_time(page: "Page") -> "Page":
    """Mark a page whose forms change nothing that could be lost, and may be sent again and again from one page.

    Such as a search, a preview, options for a passkey, or the choice of a tenant.
    """
    setattr(page, _EXEMPT, True)
    return page


class SentForms:
    """Process each form once. A second sender waits for the response of the first."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.method != "POST" or not _is_processed_once(request):
            return self.get_response(request)
        browser_token = request.COOKIES.get(settings.CSRF_COOKIE_NAME)
        if browser_token is None or _FORM_TOKEN not in request.POST:
            # Rejected, as a form without a token.
            return self.get_response(request)
        # Also the session: who signs in or out in this browser never gets a response of before.
        session = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
        key = form_key(request, "console", browser_token, session)
        return respond_once(key, lambda: self.get_response(request))


def _is_processed_once(request: HttpRequest) -> bool:
    try:
        match = resolve(request.path_info, getattr(request, "urlconf", None))
    except Resolver404:
        return False
    # For the metrics, which a repeated response reaches without a view.
    request.resolver_match = match
    return not getattr(match.func, _EXEMPT, False)

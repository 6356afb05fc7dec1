"""Django's console middlewares, for console pages only: the API pays nothing for sessions, forms and messages."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.exceptions import MiddlewareNotUsed
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from django.middleware.gzip import GZipMiddleware
from django.middleware.locale import LocaleMiddleware
from django.utils import translation
from django.utils.deprecation import MiddlewareMixin
from django.utils.functional import SimpleLazyObject
from whitenoise.middleware import WhiteNoiseMiddleware

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser

    from userflow.accounts.models import AdminUser

CONSOLE = "/admin/"


class ConsoleOnly(MiddlewareMixin):
    """Skip API requests."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path.startswith(CONSOLE):
            return super().__call__(request)  # type: ignore[return-value]  # MiddlewareMixin may be async, ours is not
        return self.get_response(request)  # type: ignore[return-value]  # MiddlewareMixin may be async, ours is not


class ConsoleStaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]  # whitenoise has no types
    def __call__(self, request: HttpRequest) -> HttpResponse:
        answer: HttpResponse = (super().__call__ if request.path.startswith("/static/") else self.get_response)(request)
        return answer


class ConsoleCompression(ConsoleOnly, GZipMiddleware):
    """Compress pages. Django adds random bytes, so that lengths say little about secrets in a page (BREACH)."""


class ConsoleLanguage(ConsoleOnly, LocaleMiddleware):
    """Use the browser's language if there is a catalogue for it, else English. The API is in English."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        if len(settings.LANGUAGES) == 1:
            raise MiddlewareNotUsed
        super().__init__(get_response)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            return super().__call__(request)
        finally:
            # The next request of this thread must not inherit the language.
            translation.deactivate()


class ConsoleSessions(ConsoleOnly, SessionMiddleware):
    """Sessions of the console."""


class ConsoleSignIn(ConsoleOnly, AuthenticationMiddleware):
    """Set `request.user` to the admin user with a complete sign-in."""

    def process_request(self, request: HttpRequest) -> None:
        request.user = SimpleLazyObject(lambda: _user_of(request))  # type: ignore[assignment]  # Django does the same


def _user_of(request: HttpRequest) -> "AdminUser | AnonymousUser":
    # Models are not loaded yet when this module is imported.
    from django.contrib.auth.models import AnonymousUser

    from console.frame.access import staff_or_none

    staff = staff_or_none(request)
    return staff.user if staff else AnonymousUser()


class ConsoleMessages(ConsoleOnly, MessageMiddleware):
    """Messages of the console."""


class ConsoleForgeryProtection(CsrfViewMiddleware):
    """Check CSRF tokens on console pages only: the API uses no cookies."""

    # Django names the three further arguments; here they are only passed on, so their types do not matter.
    def process_view(self, request: HttpRequest, *args: object) -> HttpResponse | None:  # type: ignore[override]  # as above
        return super().process_view(request, *args) if request.path.startswith(CONSOLE) else None  # type: ignore[arg-type]  # as above

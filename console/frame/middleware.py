"""The middlewares of console pages: the API pays nothing for sessions, forms and messages."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.core.exceptions import MiddlewareNotUsed
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest, HttpResponse
from django.middleware.locale import LocaleMiddleware
from django.utils import translation
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string
from whitenoise.middleware import WhiteNoiseMiddleware

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser

    from userflow.accounts.models import AdminUser

CONSOLE = "/admin/"


class ConsoleMiddleware:
    """Run CONSOLE_MIDDLEWARE, outermost first, around the console's pages as Django runs MIDDLEWARE around every path."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self._console = get_response
        self._view_middleware: list[Callable[..., HttpResponse | None]] = []
        for path in reversed(settings.CONSOLE_MIDDLEWARE):
            try:
                middleware = import_string(path)(self._console)
            except MiddlewareNotUsed:
                continue
            if hasattr(middleware, "process_view"):
                self._view_middleware.insert(0, middleware.process_view)
            self._console = convert_exception_to_response(middleware)  # type: ignore[assignment]  # none is async

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return (self._console if request.path.startswith(CONSOLE) else self.get_response)(request)

    def process_view(self, request: HttpRequest, *view: object) -> HttpResponse | None:
        """Return the response of the first middleware that responds instead of the view (and its arguments)."""
        if not request.path.startswith(CONSOLE):
            return None
        responses = (process_view(request, *view) for process_view in self._view_middleware)
        return next((response for response in responses if response), None)


class ConsoleStaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]  # whitenoise has no types
    def __call__(self, request: HttpRequest) -> HttpResponse:
        answer: HttpResponse = (super().__call__ if request.path.startswith("/static/") else self.get_response)(request)
        return answer


class ConsoleLanguage(LocaleMiddleware):
    """Use the browser's language if there is a catalogue for it, else English. The API is in English."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        if len(settings.LANGUAGES) == 1:
            raise MiddlewareNotUsed
        super().__init__(get_response)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            return super().__call__(request)  # type: ignore[return-value]  # MiddlewareMixin may be async, ours is not
        finally:
            # The next request of this thread must not inherit the language.
            translation.deactivate()


class ConsoleSignIn(AuthenticationMiddleware):
    """Set `request.user` to the admin user with a complete sign-in."""

    def process_request(self, request: HttpRequest) -> None:
        request.user = SimpleLazyObject(lambda: _user_of(request))  # type: ignore[assignment]  # Django does the same


def _user_of(request: HttpRequest) -> "AdminUser | AnonymousUser":
    # Models are not loaded yet when this module is imported.
    from django.contrib.auth.models import AnonymousUser

    from console.frame.access import staff_or_none

    staff = staff_or_none(request)
    return staff.user if staff else AnonymousUser()

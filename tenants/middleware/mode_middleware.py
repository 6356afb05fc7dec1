"""Apply read-only and maintenance mode of the platform to requests (`tenants.operating_modes`)."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from identity_platform.api.handlers import plain_response
from identity_platform.postgresql.forbidden_writes import forbid_writes
from tenants import operating_modes
from tenants.errors import ReadOnlyMode
from tenants.middleware.fence_middleware import DOCUMENTS, SERVED
from tenants.states import Mode

# The console decides by itself who may do what (`console.frame.site`): operators end the mode there.
CONSOLE: Final = "/admin/"
# The attribute of a view, or of a class of views, that responds by itself.
SHOWS_MODES: Final = "shows_modes"


class OperatingModes:
    """Reject all requests during maintenance, and all writes of requests in read-only mode.

    Probes and documents stay. Pages for people respond by themselves (`shows_modes`), in their own form.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        error = None if request.path in SERVED or request.path.startswith((CONSOLE, *DOCUMENTS)) else platform_error()
        request.operating_error = error  # type: ignore[attr-defined]  # read by `closing_error`
        # During maintenance too: a view that responds by itself must not write either.
        with forbid_writes(error, "default", "tenant") if error else nullcontext():
            return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponseBase], *_: object
    ) -> HttpResponse | None:
        """Respond for every view that does not do so itself."""
        error = closing_error(request)
        if error is None or getattr(getattr(view, "view_class", view), SHOWS_MODES, False):
            return None
        return plain_response(request.path, error)


def shows_modes(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Mark a view that responds by itself while the platform is closed."""
    setattr(view, SHOWS_MODES, True)
    return view


def platform_error() -> ReadOnlyMode | None:
    """Return the error of the platform's mode, or None."""
    active = operating_modes.current().platform
    return operating_modes.error_of(active) if active else None


def check_open(request: HttpRequest) -> None:
    """Raise MaintenanceMode while the platform is closed to this request."""
    if (error := closing_error(request)) is not None:
        raise error


def closing_error(request: HttpRequest) -> ReadOnlyMode | None:
    """Return the error of a request while the platform is closed to it, or None."""
    error: ReadOnlyMode | None = getattr(request, "operating_error", None)
    return error if error is not None and error.mode is Mode.MAINTENANCE else None

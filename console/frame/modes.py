"""Read-only and maintenance mode in the console: operators go on working, as the modes are theirs to end."""

from collections.abc import Callable
from functools import wraps

from django.http import HttpRequest, HttpResponse

from console.frame.access import Page, staff_at
from identity_platform.postgresql.forbidden_writes import forbid_writes
from tenants.middleware.mode_middleware import platform_error
from tenants.states import Mode

# Pages of the sign-in, and those that end a mode.
_EXEMPT = "works_in_every_mode"


def in_every_mode(page: Page) -> Page:
    """Mark a page that works in every mode, also where it writes."""
    setattr(page, _EXEMPT, True)
    return page


def with_modes(page: Page) -> Callable[..., HttpResponse]:
    """Wrap a page of a signed-in admin user.

    In read-only mode no page writes. During maintenance only operators are let in. Raises ReadOnlyMode, MaintenanceMode.
    """

    @wraps(page)
    def limited(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        error = None if getattr(page, _EXEMPT, False) else platform_error()
        if error is None:
            return page(request, *args, **kwargs)
        if error.mode is Mode.MAINTENANCE:
            if not staff_at(request).is_operator:
                raise error
            return page(request, *args, **kwargs)
        with forbid_writes(error, "default", "tenant"):
            return page(request, *args, **kwargs)

    return limited

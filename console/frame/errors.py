from functools import wraps

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from console.frame.access import Page
from console.frame.records import render_page
from console.frame.scope import NoTenantChosen, to_the_chooser
from console.frame.step_up import to_step_up
from identity_platform.api.errors import ApiError
from identity_platform.api.handlers import note_rejection
from userflow.errors import InsufficientAuthentication


def with_error_pages(page: Page) -> Page:
    """Wrap a page so that 403, 404 and errors of actions become pages of the console.

    Anonymous users are redirected to the sign-in before, so these pages disclose nothing to them.
    """

    @wraps(page)
    def guarded(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        try:
            return page(request, *args, **kwargs)
        except NoTenantChosen:
            return HttpResponseRedirect(to_the_chooser(request))
        except PermissionDenied as error:
            if isinstance(error.__cause__, ApiError):
                note_rejection(request, error.__cause__)
            text = str(error) or _(
                "Your roles do not allow this. Ask an admin who manages admin users for a role that does."
            )
            return _error_page(request, 403, _("Not allowed"), text)
        except Http404:
            text = _("This page does not exist, was removed, or belongs to another tenant.")
            return _error_page(request, 404, _("Not found"), text)
        except InsufficientAuthentication:
            return to_step_up(request)
        except ApiError as error:
            note_rejection(request, error)
            return _error_page(request, error.status, error.phrase, error.text)

    return guarded


def _error_page(request: HttpRequest, status: int, title: str, text: str) -> HttpResponse:
    return render_page(request, "console/error.html", title, {"text": text}, status=status)

"""Send staff to the re-authentication page before an action for which their session proves too little."""

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse

from console.frame.access import staff_at
from identity_platform.api.handlers import note_rejection
from userflow.errors import InsufficientAuthentication
from userflow.sessions.assurance import Action, require_assurance


def step_up_first(request: HttpRequest, action: Action | None, *, back: str = "") -> HttpResponseRedirect | None:
    """Return the way to the re-authentication page, or None if the session proves what the action needs.

    None as the action means that the table has no row for it and it needs nothing more. `back` is the page
    to return to, for an action whose own path only takes forms.
    """
    if action is None:
        return None
    try:
        require_assurance(action, staff_at(request).principal)
    except InsufficientAuthentication:
        return to_step_up(request, back=back)
    return None


def to_step_up(request: HttpRequest, *, back: str = "") -> HttpResponseRedirect:
    """Redirect to the re-authentication page, which returns to the page that was asked for, or to `back`."""
    note_rejection(request, InsufficientAuthentication())
    query = urlencode({"next": back or request.get_full_path()})
    return HttpResponseRedirect(f"{reverse('admin:reauthenticate')}?{query}")

"""Proving again who sits at the keyboard before something dangerous."""

import time
from typing import Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse

from identity_platform.console.access import AUTH_TIME

# As for adding and removing factors over the API (contract.md section 6).
FRESH_SECONDS: Final = 15 * 60


def is_fresh(request: HttpRequest) -> bool:
    """Whether the last complete sign-in or re-authentication is at most fifteen minutes old."""
    return time.time() - float(request.session.get(AUTH_TIME, 0)) <= FRESH_SECONDS


def ask_again(request: HttpRequest) -> HttpResponseRedirect:
    """To the re-authentication page and from there back to the page that was asked for."""
    return HttpResponseRedirect(f"{reverse('admin:reauthenticate')}?{urlencode({'next': request.get_full_path()})}")

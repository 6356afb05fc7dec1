"""Default pages for the links in mails, for tenants without own pages: forms over the public API."""

import secrets

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from identity_platform.api.handlers import read_only
from tenants.middleware.mode_middleware import closing_error, shows_modes


@shows_modes
@read_only
def landing_page(request: HttpRequest, template: str) -> HttpResponse:
    """Render `template`. Its script reads the token after the `#`, which browsers never send to a server.

    Raises MethodNotAllowed except for GET and HEAD.
    """
    nonce = secrets.token_urlsafe(16)
    if (closed := closing_error(request)) is not None:
        response = render(request, "pages/closed.html", {"text": closed.text}, status=closed.status)
        response.headers["Retry-After"] = closed.headers["Retry-After"]
    else:
        response = render(request, template, {"nonce": nonce, "reference": getattr(request, "request_id", "")})
    # Only this page's own script may run where users enter a new password.
    response.headers["Content-Security-Policy"] = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    response.headers["Cache-Control"] = "no-store"
    return response

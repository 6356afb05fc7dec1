"""Where the link in a mail leads when neither tenant nor operator has a page of their own: a form over the public API."""

import secrets

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from identity_platform.api import errors, handlers


def reset_page(request: HttpRequest) -> HttpResponse:
    """The page at PASSWORD_RESET_URL; it reads the token from behind the `#`, which never reaches a server."""
    if request.method not in ("GET", "HEAD"):
        return handlers.plain_answer(request.path, errors.MethodNotAllowed(headers={"Allow": "GET, HEAD"}))
    nonce = secrets.token_urlsafe(16)
    response = render(request, "pages/password_reset.html", {"nonce": nonce})
    # Nothing but this page's own script runs where somebody types a new password.
    response.headers["Content-Security-Policy"] = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    response.headers["Cache-Control"] = "no-store"
    return response

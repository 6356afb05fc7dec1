"""Where the links in mails lead when neither tenant nor operator has pages of their own: forms over the public API."""

import secrets

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from identity_platform.api.handlers import read_only


@read_only
def landing_page(request: HttpRequest, template: str) -> HttpResponse:
    """The page made of `template`; it reads the mail's token from behind the `#`, which never reaches a server.

    Any method but GET and HEAD is rejected with MethodNotAllowed.
    """
    nonce = secrets.token_urlsafe(16)
    response = render(request, template, {"nonce": nonce})
    # Nothing but this page's own script runs where somebody types a new password.
    response.headers["Content-Security-Policy"] = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    response.headers["Cache-Control"] = "no-store"
    return response

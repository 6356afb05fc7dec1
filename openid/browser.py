"""Cookies of the hosted pages: the browser's session with a tenant, the browser before it, and a sign-in under way.

Tenants share a host, so the name of each cookie carries its tenant. With TLS the names have the prefix `__Host-`: no other
host, not even a subdomain, can set them (RFC 6265bis section 4.1.3.2).
"""

import re
from typing import Final
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from identity_platform.crypto import derive_key, hash_token, keyed_digest

# The session of the browser; a random value that binds forms and authorization requests to the browser, until it is closed;
# the steps of a sign-in that is not complete; a browser that skips the second step; the language that its user has chosen.
SESSION: Final = "sid"
BROWSER: Final = "br"
STEPS: Final = "steps"
DEVICE: Final = "device"
LANGUAGE: Final = "language"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


def cookie_name(kind: str, tenant_id: UUID) -> str:
    """Return the name of the tenant's cookie of this kind."""
    return f"{settings.COOKIE_PREFIX}{kind}-{tenant_id.hex}"


def read_cookie(request: HttpRequest, kind: str, tenant_id: UUID) -> str | None:
    """Return the value of the browser's cookie of this kind, or None without one."""
    value = request.COOKIES.get(cookie_name(kind, tenant_id), "")
    return value if _TOKEN.fullmatch(value) else None


def set_session_cookie(response: HttpResponse, tenant_id: UUID, value: str) -> None:
    """Send the cookie of a session. The server decides how long the session lasts; the cookie is never shorter."""
    set_cookie(response, SESSION, tenant_id, value, max_age=int(settings.SESSION_SECONDS))


def set_cookie(response: HttpResponse, kind: str, tenant_id: UUID, value: str, *, max_age: int | None = None) -> None:
    """Send a cookie that scripts and other sites cannot read. Top-level links from other sites carry it (Lax)."""
    response.set_cookie(
        cookie_name(kind, tenant_id),
        value,
        max_age=max_age,
        secure=bool(settings.SESSION_COOKIE_SECURE),
        httponly=True,
        samesite="Lax",
    )


def delete_cookie(response: HttpResponse, kind: str, tenant_id: UUID) -> None:
    """Delete the tenant's cookie of this kind."""
    # A browser ignores a __Host- cookie without Secure, also one that deletes (Django's `delete_cookie` sets it by prefix).
    response.delete_cookie(cookie_name(kind, tenant_id), samesite="Lax")


def form_token(tenant_id: UUID, browser: str, session: str | None) -> str:
    """Return the token of the browser's forms. It changes with the session, so none from before a sign-in works after it.

    Django's own check cannot be used: with `no-referrer` browsers send forms with `Origin: null`, which it rejects.
    """
    bound = f"{tenant_id.hex} {browser} {session or ''}"
    return keyed_digest(bound, key=_key(), purpose="form of a hosted page").hex()


def steps_key() -> bytes:
    """Return the key that seals the cookie of a sign-in that is not complete."""
    return derive_key(_key(), "steps of a sign-in")


def _key() -> bytes:
    return hash_token(str(settings.SECRET_KEY))

"""Redirect URIs of clients: which ones may be registered, and which ones a request may state."""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

_URI_CHARACTERS = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
# Schemes that a browser or the system handles itself belong to no application.
_NOT_AN_APP = re.compile(
    "about|blob|chrome|data|file|filesystem|ftps?|https?|intent|jar|javascript|mailto|resource|sms|tel|urn|vbscript"
    "|view-source|wss?"
)
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_LOOPBACK_URI = re.compile(
    r"(?P<host>http://(?:localhost|127\.0\.0\.1|\[::1\]))(?::(?P<port>[0-9]{1,5}))?(?P<rest>[/?].*)?"
)
_FORM = "Send an absolute URI without a fragment: https, http on localhost, or a scheme of your application."
_NO_DOT = "A scheme of your application needs a dot, like com.example.app:/callback (RFC 8252 section 7.1)."


def matches(registered: Iterable[str], presented: str) -> bool:
    """Return whether a request may state this redirect URI: one of the registered ones, character by character.

    The port of http on loopback may differ (RFC 8252 section 7.3): a native application gets a free one from the system.
    """
    registered_uris = list(registered)
    if presented in registered_uris:
        return True
    native = _without_port(presented)
    return native is not None and any(native == _without_port(uri) for uri in registered_uris)


def _without_port(uri: str) -> tuple[str, str] | None:
    parts = _LOOPBACK_URI.fullmatch(uri)
    if parts is None or not 0 < int(parts["port"] or 80) < 65536:
        return None
    return parts["host"], parts["rest"] or ""


def is_web_or_loopback(uri: str) -> bool:
    """Return whether the browser brings a code to this redirect URI encrypted, or does not leave its machine with it."""
    return uri.startswith("https://") or _without_port(uri) is not None


def problem_of_redirect_uri(uri: str) -> str | None:
    """Return why a client may not register this redirect URI, or None.

    Allowed: https, http on loopback for development and native applications (RFC 8252 section 7.3), or a scheme of the
    application's own with a dot (section 7.1). No fragment (RFC 6749 section 3.1.2), no user info, no wildcard host.
    """
    if not _URI_CHARACTERS.fullmatch(uri):
        return _FORM
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return _FORM
    scheme, separator, rest = uri.partition(":")
    if not separator or not rest or not _SCHEME.fullmatch(scheme) or "@" in parts.netloc:
        return _FORM
    if scheme == "https":
        return None if parts.hostname and "*" not in parts.netloc else _FORM
    if scheme == "http":
        return None if parts.hostname in LOOPBACK else "Plain http is allowed for localhost only. Use https."
    if _NOT_AN_APP.fullmatch(scheme):
        return f"The scheme {scheme} does not belong to an application."
    return None if "." in scheme else _NO_DOT

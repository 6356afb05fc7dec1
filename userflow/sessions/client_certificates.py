"""Certificates of clients (RFC 8705): the proxy that ends TLS passes on the one whose key the client has proven to it."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote

from cryptography import x509
from django.conf import settings
from django.http import HttpRequest
from django.utils.timezone import now
from rest_framework.request import Request

from identity_platform.api.client_address import peer_is_in

LONGEST: Final = 16_384
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----\s([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----\s*")
_XFCC_PAIR: Final = re.compile(r'([A-Za-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^",;]*))')


def takes_certificates() -> bool:
    """Return whether a proxy passes certificates of clients on."""
    return bool(settings.CLIENT_CERTIFICATE_HEADER)


def presented_certificate(request: HttpRequest | Request) -> x509.Certificate | None:
    """Return the certificate that the client has presented, whose chain nothing has verified.

    None without one, and for one that is malformed, not valid now, or in a header that is not from a proxy of
    CLIENT_CERTIFICATE_PROXIES.
    """
    if not takes_certificates():
        return None
    value = request.META.get(f"HTTP_{settings.CLIENT_CERTIFICATE_HEADER.upper().replace('-', '_')}")
    if not value or len(value) > LONGEST or not peer_is_in(request.META, settings.CLIENT_CERTIFICATE_PROXIES):
        return None
    encoded = FORMATS[settings.CLIENT_CERTIFICATE_FORMAT](value)
    try:
        certificate = x509.load_der_x509_certificate(base64.b64decode(encoded or "", validate=True))
    except (binascii.Error, ValueError):
        return None
    is_valid = certificate.not_valid_before_utc <= now() <= certificate.not_valid_after_utc
    return certificate if is_valid else None


def _from_pem(value: str) -> str | None:
    """Return the DER in base64 of one certificate in PEM, percent-encoded (nginx: `$ssl_client_escaped_cert`)."""
    pem = _PEM.fullmatch(unquote(value))
    return "".join(pem[1].split()) if pem else None


def _from_byte_sequence(value: str) -> str | None:
    """Return the DER in base64 of the header Client-Cert (RFC 9440 section 2.2)."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == ":" else None


def _from_xfcc(value: str) -> str | None:
    """Return the DER in base64 of Envoy's X-Forwarded-Client-Cert.

    It has one element: of several, the client or another proxy has sent the first.
    """
    certificates, position = [], 0
    while pair := _XFCC_PAIR.match(value, position):
        if pair[1].lower() == "cert":
            certificates.append(pair[2] or "")
        position = pair.end()
        if position == len(value):
            return _from_pem(certificates[0]) if len(certificates) == 1 else None
        if value[position] != ";":
            return None
        position += 1
    return None


# By CLIENT_CERTIFICATE_FORMAT.
FORMATS: Final[Mapping[str, Callable[[str], str | None]]] = {
    "pem": _from_pem,
    "rfc9440": _from_byte_sequence,
    "xfcc": _from_xfcc,
}

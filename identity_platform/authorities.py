"""Certificate authorities that outbound TLS trusts beside the public ones: a company's own."""

import ssl
from typing import Final

from cryptography import x509
from requests.adapters import HTTPAdapter
from urllib3.util.ssl_ import create_urllib3_context

MOST_CERTIFICATES: Final = 20
# All settings of a tenant together have 16 KiB.
LONGEST_PEM: Final = 12_288
PEM_EXPECTED: Final = "Send certificates in PEM, beginning with -----BEGIN CERTIFICATE-----."


def check_authorities(pem: str) -> str:
    """Return PEM certificates with the line ends of PEM. Raises ValueError, which says what to send instead."""
    text = pem.replace("\r\n", "\n")
    if "PRIVATE KEY" in text:
        raise ValueError("Send certificates only, without a private key.")
    try:
        certificates = x509.load_pem_x509_certificates(text.encode("ascii"))
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ValueError, ssl.SSLError):
        # UnicodeEncodeError is a ValueError.
        raise ValueError(PEM_EXPECTED) from None
    if len(certificates) > MOST_CERTIFICATES:
        raise ValueError(f"Send at most {MOST_CERTIFICATES} certificates.")
    return text


def joined(*pems: str) -> str:
    """Return the certificates of several texts as one."""
    return "\n".join(pem for pem in pems if pem)


class TrustingAdapter(HTTPAdapter):
    """Requests' adapter that trusts authorities (PEM) beside the public ones, which urllib3 adds to any context."""

    def __init__(self, authorities: str, *, connections: int = 10) -> None:
        self._authorities = authorities
        super().__init__(pool_connections=connections, pool_maxsize=connections)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: object) -> None:
        if self._authorities:
            context = create_urllib3_context()
            context.load_verify_locations(cadata=self._authorities)
            options["ssl_context"] = context
        super().init_poolmanager(connections, maxsize, block, **options)


def trusting_public_and(pem: str) -> ssl.SSLContext:
    """Return a context that trusts the system's authorities and these."""
    context = ssl.create_default_context()
    if pem:
        context.load_verify_locations(cadata=pem)
    return context

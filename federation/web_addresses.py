"""Addresses that connections name: what browsers are sent to, and what the platform calls."""

import ipaddress
import re
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

LONGEST_ADDRESS: Final = 2048
LONGEST_HOST: Final = 253
_LABEL_REST: Final = "(?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
# The last label begins with a letter: browsers take `127.1` and `0x7f.1` for IPv4 addresses.
_DNS_NAME: Final = re.compile(rf"(?:[A-Za-z0-9]{_LABEL_REST}\.)*[A-Za-z]{_LABEL_REST}")


def is_web_address(address: str, *, takes_plain_http: Callable[[str], bool]) -> bool:
    """Return whether this is an https address without credentials, or an http one of a host that `takes_plain_http`.

    Its origin is also safe as a source in a Content-Security-Policy.
    """
    if (
        not (address.isascii() and address.isprintable())
        or len(address) > LONGEST_ADDRESS
        or {" ", "\\"} & set(address)
    ):
        return False
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    authority = f"[{host}]" if ":" in host else host
    # No credentials, no empty port, no name in brackets.
    is_canonical = parts.netloc.lower() in (authority, f"{authority}:{port}")
    if not (is_canonical and _is_host(host)) or port == 0:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and takes_plain_http(host))


def _is_host(host: str) -> bool:
    """Whether this is a DNS name, or an IP address without a zone."""
    if _DNS_NAME.fullmatch(host) and len(host) <= LONGEST_HOST:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host

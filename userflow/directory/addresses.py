"""Where the platform lets itself be sent: a tenant names the server, so it could name one of ours.

A name is looked up once, every address it has must be one that anybody may reach, and the connection goes to the very
address that was looked at: a name that points elsewhere a moment later (DNS rebinding) gains nothing. Networks in
`DIRECTORY_ALLOWED_NETWORKS` are let through, as most directories stand in private ones.
"""

import ipaddress
import socket
import time
from typing import Final

from django.conf import settings

from userflow.errors import DirectoryAddressRefused, DirectoryFailed

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# RFC 6052: the last 32 bits are an IPv4 address that a gateway connects to.
NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


def is_allowed(address: Address) -> bool:
    """Whether a connection may go there: a public unicast address, or one of the networks that the settings allow."""
    inner = _embedded(address)
    if inner is not None:
        return is_allowed(inner)
    if any(
        address.version == network.version and address in network for network in settings.DIRECTORY_ALLOWED_NETWORKS
    ):
        return True
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _embedded(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address inside an IPv6 one that leads to it."""
    if not isinstance(address, ipaddress.IPv6Address):
        return None
    if address in NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    # Teredo (RFC 4380) names the address of a relay and of a client: neither is a directory, and neither is let through.
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def refuse_plainly_forbidden(host: str) -> None:
    """DirectoryAddressRefused for a host that needs no look-up to be refused: an address, or this machine itself."""
    if host.lower().rstrip(".").rpartition(".")[2] == "localhost":
        host = "127.0.0.1"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return
    if not is_allowed(address):
        raise DirectoryAddressRefused


def connect(host: str, port: int, *, timeout: float) -> socket.socket:
    """A connection to the host, by an address that was looked up once and may be reached.

    Refuses with DirectoryAddressRefused (before anything is sent), DirectoryFailed (no such name, nobody answers).
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        raise DirectoryFailed(f"The name {host} cannot be looked up: check the server's name.") from problem
    # A scope (fe80::1%eth0) is no part of the address that is judged.
    places = [(family, place) for family, _, _, _, place in found]
    if not all(is_allowed(ipaddress.ip_address(str(place[0]).partition("%")[0])) for _, place in places):
        raise DirectoryAddressRefused
    deadline = time.monotonic() + timeout
    for family, place in places:
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            connection.connect(place)
        except OSError:
            connection.close()
            continue
        connection.settimeout(timeout)
        return connection
    raise DirectoryFailed(f"Nobody answers at {host}:{port}: check server and port, and the firewalls between.")

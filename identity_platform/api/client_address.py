"""The address that a request comes from, and the network that counts as one caller."""

import functools
import ipaddress
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network

# For a peer without an address: a proxy that connects over a Unix socket.
NO_ADDRESS = "0.0.0.0"  # noqa: S104  # nothing binds to it
_LONGEST_ADDRESS = 64
# RFC 7239, and what proxies sent before it.
_FORWARDING = frozenset({"HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP"})


def client_address(request_meta: Mapping[str, object], hops: int) -> str:
    """Return the peer's address, or behind `hops` own proxies the address that the outermost of them saw.

    Each proxy appends the address of its peer to X-Forwarded-For, so the caller's address is the `hops`-th from the
    right; the caller controls everything to the left of it. A header that is missing, too short or malformed is
    ignored. IPv4-mapped IPv6 addresses are returned as IPv4.
    """
    if hops > 0 and (forwarded := _forwarded(request_meta, hops)):
        return forwarded
    return _normalised(str(request_meta.get("REMOTE_ADDR", ""))[: _LONGEST_ADDRESS + 1]) or NO_ADDRESS


def is_callers_own(request_meta: Mapping[str, object], hops: int) -> bool:
    """Return whether `client_address` is the caller's own address and not that of a proxy that many callers share.

    Without own proxies a forwarding header means that a proxy is not configured, or that the caller forged it.
    """
    if hops > 0:
        return _forwarded(request_meta, hops) is not None
    if not request_meta.keys().isdisjoint(_FORWARDING):
        return False
    return _normalised(str(request_meta.get("REMOTE_ADDR", ""))[: _LONGEST_ADDRESS + 1]) is not None


def peer_is_in(request_meta: Mapping[str, object], networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    """Return whether the peer of the connection, which may be a proxy, has an address in one of the networks."""
    peer = _normalised(str(request_meta.get("REMOTE_ADDR", ""))[: _LONGEST_ADDRESS + 1])
    return peer is not None and any(ipaddress.ip_address(peer) in network for network in networks)


def _forwarded(request_meta: Mapping[str, object], hops: int) -> str | None:
    seen = str(request_meta.get("HTTP_X_FORWARDED_FOR", "")).rsplit(",", hops)
    return _normalised(seen[-hops][: _LONGEST_ADDRESS + 1]) if len(seen) >= hops else None


@functools.lru_cache(maxsize=4096)
def _normalised(text: str) -> str | None:
    if len(text) > _LONGEST_ADDRESS:
        return None
    text = text.strip()
    if text.startswith("["):
        text, bracket, port = text[1:].partition("]")
        if not bracket or ":" not in text or (port and not _is_port(port.removeprefix(":"))):
            return None
    elif text.count(":") == 1:
        text, _, port = text.partition(":")
        if not _is_port(port):
            return None
    try:
        # A zone (fe80::1%eth0) names an interface of one machine and is no part of the address.
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(address)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text[:6]) <= 65535


@functools.lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """Return the network that counts as one caller: a single IPv4 address, or the /64 of an IPv6 address.

    Raises ValueError if `address` is not an IP address.
    """
    length = 32 if ipaddress.ip_address(address).version == 4 else 64
    return str(ipaddress.ip_network((address, length), strict=False))

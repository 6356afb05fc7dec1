"""Rate limits over django-ratelimit, and whose address a request is counted for."""

from __future__ import annotations

import functools
import ipaddress
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.cache import caches
from django_ratelimit import core

from identity_platform.api.cache import RateLimitCache

# Where the peer has no address: a proxy that connects over a Unix socket.
NO_ADDRESS = "0.0.0.0"  # noqa: S104  # nothing is bound to it: it stands where an address is wanted
_LONGEST_ADDRESS = 64
# RFC 7239, and what proxies sent before it.
_FORWARDING = frozenset({"HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP"})


@dataclass(frozen=True, slots=True)
class Usage:
    """How much of a limit is used in the present window; the times are Unix time and seconds."""

    limit: int
    count: int
    remaining: int
    reset_at: int
    limited: bool
    retry_after: int


def count(*, group: str, key: str, limit: int, period: int) -> Usage:
    """Count one use of `key` in `group`; `limit` uses are free in each window of `period` seconds.

    Never raises for a missing server: then the process counts for itself (`cache.degraded`).
    """
    return _usage(group=group, key=key, limit=limit, period=period, increment=True)


def peek(*, group: str, key: str, limit: int, period: int) -> Usage:
    """The same without counting: `limited` says whether the window is used up, so that the next use is one too many."""
    return _usage(group=group, key=key, limit=limit, period=period, increment=False)


@dataclass(frozen=True, slots=True)
class Limit:
    """What `count` and `peek` take, as one value."""

    group: str
    key: str
    limit: int
    period: int


def count_and_peek(counted: Limit, looked_at: Limit) -> tuple[Usage, Usage]:
    """`count` of the one and `peek` of the other in one round trip."""
    _look_along(looked_at)
    used = _usage(increment=True, group=counted.group, key=counted.key, limit=counted.limit, period=counted.period)
    return used, _peek(looked_at)


def peek_both(one: Limit, other: Limit) -> tuple[Usage, Usage]:
    """`peek` of both in one round trip."""
    cache = caches[settings.RATELIMIT_USE_CACHE]
    if not isinstance(cache, RateLimitCache) or not getattr(settings, "RATELIMIT_ENABLE", True):
        return _peek(one), _peek(other)
    (key, ends), (other_key, other_ends) = _place(one), _place(other)
    total, other_total = cache.look_at_both(key, other_key)
    return _looked_at(one, total, ends), _looked_at(other, other_total, other_ends)


def _place(limit: Limit) -> tuple[str, int]:
    """The key of the present counter and when its window ends; the library has no door to them."""
    window = core._get_window(limit.key, limit.period)
    return core._make_cache_key(limit.group, window, (limit.limit, limit.period), limit.key, core.ALL), window


def _looked_at(limit: Limit, total: int, ends: int) -> Usage:
    wait, limited = max(1, ends - int(time.time())), total >= limit.limit
    return Usage(limit.limit, total, max(0, limit.limit - total), ends, limited, wait if limited else 0)


def _peek(limit: Limit) -> Usage:
    return peek(group=limit.group, key=limit.key, limit=limit.limit, period=limit.period)


def _look_along(limit: Limit) -> None:
    cache = caches[settings.RATELIMIT_USE_CACHE]
    if isinstance(cache, RateLimitCache):
        # Should the window end just now, the peek asks for itself.
        cache.look_along(_place(limit)[0])


def _usage(*, group: str, key: str, limit: int, period: int, increment: bool) -> Usage:
    usage: dict[str, Any] | None = core.get_usage(
        request=None, group=group, key=lambda *_: key, rate=(limit, period), increment=increment
    )
    now = int(time.time())
    if usage is None:  # RATELIMIT_ENABLE is off
        return Usage(limit, 0, limit, now + period, False, 0)
    used: int = usage["count"]
    limited = used > limit if increment else used >= limit
    wait = max(1, usage["time_left"])
    return Usage(
        limit=limit,
        count=used,
        remaining=max(0, limit - used),
        reset_at=now + wait,
        limited=limited,
        retry_after=wait if limited else 0,
    )


def client_address(request_meta: Mapping[str, Any], hops: int) -> str:
    """The address a request comes from: the peer's, or behind `hops` proxies of ours what the outermost of them saw.

    Each proxy appends the address of its peer to X-Forwarded-For, so the caller's is the `hops`-th from the right, and
    all to the left of it is whatever the caller wrote there. A header that is missing, too short or malformed counts
    for nothing: then it is the peer's. IPv4-mapped IPv6 addresses answer as IPv4.
    """
    if hops > 0 and (forwarded := _forwarded(request_meta, hops)):
        return forwarded
    return _normalised(str(request_meta.get("REMOTE_ADDR", ""))[: _LONGEST_ADDRESS + 1]) or NO_ADDRESS


def is_callers_own(request_meta: Mapping[str, Any], hops: int) -> bool:
    """Whether `client_address` is the caller's own address, and not that of a proxy which many callers share.

    Without proxies of ours a forwarding header tells of a proxy that is not configured, or of a caller who would
    like to be taken for another one.
    """
    if hops > 0:
        return _forwarded(request_meta, hops) is not None
    if not request_meta.keys().isdisjoint(_FORWARDING):
        return False
    return _normalised(str(request_meta.get("REMOTE_ADDR", ""))[: _LONGEST_ADDRESS + 1]) is not None


def _forwarded(request_meta: Mapping[str, Any], hops: int) -> str | None:
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
    """The network that counts as one caller: an IPv4 address alone, an IPv6 address with the /64 of its household.

    Raises ValueError for anything but an address.
    """
    length = 32 if ipaddress.ip_address(address).version == 4 else 64
    return str(ipaddress.ip_network((address, length), strict=False))

"""Connections to addresses that tenants configure: webhook endpoints and directories.

The threat is server-side request forgery (OWASP SSRF Prevention Cheat Sheet; CWE-918): a tenant could make this host call
its own loopback, hosts of its network or the cloud's metadata service. So a name is resolved here, every address is
checked, and the connection goes to a checked address, without a second look-up that could return another one (DNS
rebinding). Redirects are not followed, and no proxy or `.netrc` of the environment is used. TLS verifies the name in the
URL.
"""

import ipaddress
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotInTime
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import requests
import structlog
from django.conf import settings
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, HTTPError, InvalidHeader, NewConnectionError
from urllib3.util.retry import Retry

from identity_platform.authorities import TrustingAdapter, joined
from identity_platform.tracing import span

log = structlog.get_logger("identity.outbound")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

RESOLVE_SECONDS: Final = 3.0
CONNECT_SECONDS: Final = 5.0
ANSWER_BYTES: Final = 4096
# Resolvers read 127.1, 0x7f000001 and 2852039166 as IPv4 addresses, too.
_ENDS_IN_NUMBER: Final = re.compile(r"(?:^|\.)(?:[0-9]+|0[xX][0-9a-fA-F]*)\.?$")
# A name with a thousand unreachable addresses would keep its caller waiting for as many timeouts.
MOST_ADDRESSES: Final = 8

# The addresses that IANA has handed out to the world.
_UNICAST: Final = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("2000::/3"))
# And what is special among them (IANA special-purpose registries, RFC 6890), named here because interpreters differ in what
# they call global: `ipaddress` lets parts of 192.0.0.0/24 and all of 192.88.99.0/24 through. 168.63.129.16 is public by its
# number and the host's own control channel on one cloud.
_SPECIAL: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
        *("2001::/23", "2001:db8::/32", "3fff::/20"),
    )
)
# Prefixes of IPv6 that carry an IPv4 address and would be routed to it: NAT64 (RFC 6052, RFC 8215), 6to4 (RFC 3056), Teredo
# (RFC 4380), IPv4-translated (RFC 7915), IPv4-compatible (RFC 4291, deprecated).
_CARRIERS: Final = tuple(
    ipaddress.ip_network(prefix)
    for prefix in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::ffff:0:0:0/96", "::/96")
)
# A name server that never answers would hold a thread of the web server for as long as the system's resolver waits. As many
# as callers can keep waiting: a tenant with a few such names must not keep others from being resolved.
_resolvers = ThreadPoolExecutor(max_workers=64, thread_name_prefix="resolve")


class TargetRejected(ValueError):
    """The address may not be called. `reason` says why and what to do, without the address that a name resolved to."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotResolved(TargetRejected):
    """The name has no address at the moment. It may have one later."""


class TooSlow(requests.RequestException):
    """The whole exchange exceeded its time limit."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Where calls may go.

    `allowed` are networks that are let through although they are private; `plain_http` takes `http://` too, into those
    networks only.
    """

    allowed: tuple[Network, ...] = ()
    plain_http: bool = False

    @classmethod
    def of(cls, networks: Iterable[str | Network], *, plain_http: bool = False) -> "Reach":
        """From networks, also as text (`10.1.0.0/16`, `::1`). Raises ValueError for what is none."""
        return cls(tuple(ipaddress.ip_network(network) for network in networks), plain_http)

    def check(self, address: Address, *, plain: bool) -> None:
        """TargetRejected unless this address may be called."""
        inner = getattr(address, "ipv4_mapped", None) or address
        if _within(inner, self.allowed):
            return
        public = _within(inner, _UNICAST) and not _within(inner, (*_SPECIAL, *_CARRIERS))
        # The interpreter's own list only takes away: a later one may know of more.
        if not public or not inner.is_global:
            raise TargetRejected("The address is in a private or reserved network: name a public host.")
        if plain:
            raise TargetRejected("Send an https:// address.")


def _within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def check_url(url: str, reach: Reach) -> None:
    """Raise TargetRejected what a GuardedSession would not call: scheme, user info, or where the name leads now."""
    host, port, plain = _parts(url)
    if plain and not reach.plain_http:
        raise TargetRejected("Send an https:// address.")
    _addresses(host, port, reach, plain=plain)


def _parts(url: str) -> tuple[str, int, bool]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise TargetRejected("Send an https:// address.") from None
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise TargetRejected("Send an https:// address.")
    if parts.username is not None or parts.password is not None:
        raise TargetRejected("The address may hold no user name and no password.")
    plain = parts.scheme == "http"
    return parts.hostname, port or (80 if plain else 443), plain


def _looked_up(host: str, port: int) -> list[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _addresses(host: str, port: int, reach: Reach, *, plain: bool) -> list[tuple[str, int]]:
    """Resolve a name and check its addresses. One forbidden address rejects the name: legitimate names have none."""
    lookup: Future[list[str]] = _resolvers.submit(_looked_up, host.strip("[]"), port)
    try:
        resolved = lookup.result(RESOLVE_SECONDS)
    except NotInTime:
        lookup.cancel()
        raise NotResolved("The name of the host could not be resolved in time.") from None
    except (OSError, UnicodeError):
        raise NotResolved("The name of the host cannot be resolved: check its spelling.") from None
    addresses = list(dict.fromkeys(resolved))
    for text in addresses:
        # A scope (`fe80::1%eth0`) is link-local in any case.
        reach.check(ipaddress.ip_address(text.partition("%")[0]), plain=plain)
    if not addresses:
        raise NotResolved("The name of the host cannot be resolved: check its spelling.")
    return [(text, port) for text in addresses]


def check_host(host: str, reach: Reach) -> None:
    """Raise TargetRejected a host that needs no look-up to be rejected: an address, or this machine itself."""
    if host.lower().rstrip(".").rpartition(".")[2] == "localhost":
        host = "127.0.0.1"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if _ENDS_IN_NUMBER.search(host):
            raise TargetRejected("Send the IPv4 address as four decimal numbers.") from None
        return
    reach.check(address, plain=False)


def connect(host: str, port: int, reach: Reach, *, seconds: float) -> socket.socket:
    """A connection for other protocols than HTTP, to a checked address of the host.

    Raises TargetRejected (before anything is sent) and OSError.
    """
    return _connected(_addresses(host, port, reach, plain=False), seconds)


def _connected(
    places: list[tuple[str, int]], seconds: float, *, ended: Callable[[], bool] = lambda: False
) -> socket.socket:
    """Connect to the first of the places that answers; all tries together take at most `seconds`. Raises OSError."""
    places = places[:MOST_ADDRESSES]
    until = time.monotonic() + seconds
    last: OSError = ConnectionRefusedError()
    for tried, address in enumerate(places):
        rest = until - time.monotonic()
        if rest <= 0 or ended():
            raise TimeoutError from last
        try:
            # A share of the rest for each: one address that swallows everything leaves time for the next.
            return socket.create_connection(address, rest / (len(places) - tried))
        except OSError as problem:
            last = problem
    raise last


class _Guarded:
    """Opens the connection of a urllib3 connection to a checked address of its host."""

    plain: bool
    watch: "Watch"
    reach: Reach
    _dns_host: str
    port: int
    timeout: object

    def _new_conn(self) -> socket.socket:
        seconds = self.timeout if isinstance(self.timeout, int | float) else CONNECT_SECONDS
        places = _addresses(self._dns_host, self.port, self.reach, plain=self.plain)
        try:
            made = _connected(places, seconds, ended=lambda: self.watch.over)
        except TimeoutError:
            raise ConnectTimeoutError("The connection was not made in time.") from None
        except OSError:
            raise NewConnectionError(self, "The connection was refused.") from None  # type: ignore[arg-type]  # a mixin of one
        # The time limit of later reads is the whole one, not what was left for connecting.
        made.settimeout(seconds)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.watch.opened(made)
        return made


class Watch:
    """Ends an exchange that goes on for too long.

    The time limits of sockets count from byte to byte, so a server that sends a byte now and then could hold its caller
    for ever. Shutting a duplicate of the socket down ends the connection under TLS as well.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.over = False

    def opened(self, made: socket.socket) -> None:
        """The connection that is watched from now on."""
        with self._lock:
            self._drop()
            self._socket = made.dup()
            if self.over:
                self._end()

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Ends the connection when what is done inside takes longer; `over` tells."""
        self.over = False
        timer = threading.Timer(seconds, self.expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def expire(self) -> None:
        with self._lock:
            self.over = True
            self._end()

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _end(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # the other side was faster
                self._socket.shutdown(socket.SHUT_RDWR)

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Adapter(TrustingAdapter):
    """Requests' adapter whose pools make guarded connections."""

    def __init__(self, reach: Reach, watch: Watch, authorities: str = "") -> None:
        self._reach = reach
        self._watch = watch
        super().__init__(authorities, connections=1)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: object) -> None:
        super().init_poolmanager(connections, maxsize, block, **options)
        guard_options = {"reach": self._reach, "watch": self._watch}
        plain = type("PlainConnection", (_Guarded, HTTPConnection), {**guard_options, "plain": True})
        secure = type("SecureConnection", (_Guarded, HTTPSConnection), {**guard_options, "plain": False})
        self.poolmanager.pool_classes_by_scheme = {
            "http": type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
            "https": type("SecurePool", (HTTPSConnectionPool,), {"ConnectionCls": secure}),
        }


class GuardedSession(requests.Session):
    """A `requests.Session` that reaches what `reach` allows, follows no redirect and reads nothing of the environment.

    For one thread and one host at a time. Its calls raise TargetRejected beside what requests raises; each needs a
    `timeout`, and `within()` bounds a whole exchange. TLS trusts the public authorities, those of the platform (`OUTBOUND_CA`)
    and `authorities` (PEM), those of the tenant that has configured the address.
    """

    def __init__(self, reach: Reach, *, authorities: str = "") -> None:
        super().__init__()
        self.trust_env = False
        self._watch = Watch()
        self.adapters.clear()
        self.mount("https://", _Adapter(reach, self._watch, joined(settings.OUTBOUND_CA, authorities)))
        if reach.plain_http:
            self.mount("http://", _Adapter(reach, self._watch))

    def send(self, request: requests.PreparedRequest, **options: object) -> requests.Response:
        host, _, _ = _parts(request.url or "")
        options["allow_redirects"] = False
        with span(request.method or "", **{"server.address": host}):
            try:
                response = super().send(request, **options)
                # Neither the path nor the query: they can contain ids and tokens.
                log.debug("outbound_call", method=request.method, host=host, status=response.status_code)
                return response
            except requests.exceptions.InvalidSchema:
                raise TargetRejected("Send an https:// address.") from None

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """None: no answer leads on. Where one does, requests reads and unpacks its whole body, of any length, and takes
        its `Location` apart, also when told not to follow (requests 2, `Session.send`)."""
        return None

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Bound what is done inside, from the connection to the last byte that is read: TooSlow after `seconds`."""
        try:
            with self._watch.limit(seconds):
                yield
        except (requests.RequestException, HTTPError, OSError) as problem:
            if self._watch.over:
                raise TooSlow("The exchange did not end in time.") from problem
            raise
        if self._watch.over:
            # An answer that was cut short can look like a whole one.
            raise TooSlow("The exchange did not end in time.")

    def close(self) -> None:
        super().close()
        self._watch.close()


@dataclass(frozen=True, slots=True)
class OutboundResponse:
    """What came back: the status, the headers, and the beginning of the body."""

    status: int
    headers: Mapping[str, str]
    beginning: bytes


def post(
    session: GuardedSession,
    url: str,
    *,
    body: bytes,
    headers: Mapping[str, str],
    seconds: float,
    most: int = ANSWER_BYTES,
) -> OutboundResponse:
    """POST a body and read at most `most` bytes of the answer, by default a few KB, all within `seconds`.

    Raises TargetRejected and `requests.RequestException`, of which TooSlow is one.
    """
    return _exchange(session, "POST", url, body=body, headers=headers, seconds=seconds, most=most)


def get(
    session: GuardedSession, url: str, *, headers: Mapping[str, str], seconds: float, most: int
) -> OutboundResponse:
    """GET a document of at most `most` bytes within `seconds`.

    Raises TargetRejected and `requests.RequestException`, also for a longer document.
    """
    plain = {**headers, "Accept-Encoding": "identity"}
    answer = _exchange(session, "GET", url, body=None, headers=plain, seconds=seconds, most=most + 1)
    if len(answer.beginning) > most:
        raise requests.exceptions.ContentDecodingError("The answer is too long.")
    return answer


def _exchange(
    session: GuardedSession,
    method: str,
    url: str,
    *,
    body: bytes | None,
    headers: Mapping[str, str],
    seconds: float,
    most: int,
) -> OutboundResponse:
    limits = (min(CONNECT_SECONDS, seconds), seconds)
    try:
        with (
            session.within(seconds),
            session.request(method, url, data=body, headers=dict(headers), timeout=limits, stream=True) as answer,
        ):
            return OutboundResponse(answer.status_code, answer.headers, answer.raw.read(most, decode_content=False))
    except HTTPError as problem:
        # What urllib3 raises while the body is read.
        raise requests.ConnectionError(type(problem).__name__) from problem


def retry_after_seconds(header: str | None) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110 section 10.2.3), or None without a valid one."""
    try:
        return None if header is None else float(min(Retry().parse_retry_after(header), 999_999_999))
    except (InvalidHeader, ValueError, OverflowError):
        return None

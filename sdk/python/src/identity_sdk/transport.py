"""What clients share: the pool of connections, the check of addresses, and one request for all threads that need its result."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from typing import Generic, TypeVar

import httpx2

T = TypeVar("T")


@cache
def shared_http() -> httpx2.Client:
    """Return the connections of all objects that got no client of their own. No cookies: they would mix users."""
    return httpx2.Client(timeout=30, cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])))


def origin_of(url: httpx2.URL | str) -> tuple[str, str, int | None]:
    """Return scheme, host and port; the port is None if it is the scheme's own."""
    parsed = httpx2.URL(url)
    return parsed.scheme, parsed.host, parsed.port


def checked_url(name: str, url: str) -> str:
    """Return the URL. Raises ValueError unless it is https, or http to this machine: secrets and keys travel there."""
    try:
        scheme, host, _ = origin_of(url)
    except (httpx2.InvalidURL, TypeError) as error:
        raise ValueError(f"{name} must be a URL.") from error
    if not host or not (scheme == "https" or (scheme == "http" and _is_loopback(host))):
        raise ValueError(f"{name} must begin with https://; http:// is for this machine only.")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class SingleFlight(Generic[T]):
    """Does a piece of work once for all threads that need it at the same time; they get its result or its error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._future: Future[T] | None = None

    def run(self, work: Callable[[], T]) -> T:
        with self._lock:
            future, is_own = self._future, self._future is None
            if future is None:
                future = self._future = Future()
        if is_own:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
            finally:
                with self._lock:
                    self._future = None
        return future.result()

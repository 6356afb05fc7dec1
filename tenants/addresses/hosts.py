"""Requests to the sign-in domains of tenants: the host finds the tenant, whose pages and endpoints alone are there."""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse

from identity_platform.api import metrics
from identity_platform.api.app_parts import api_part
from identity_platform.api.errors import Unavailable
from identity_platform.api.handlers import plain_response
from tenants.entering import lookup
from tenants.entering.lookup import TenantContext
from tenants.errors import TooManyUnknownHosts, UnknownTenant

_DOMAIN: Final = re.compile(r"(?=.{4,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]")
_HOST: Final = re.compile(r"([A-Za-z0-9.-]+)(?::[0-9]{1,5})?")
# How long a host counts as unknown without another look-up: a new sign-in domain works after this time at the latest.
UNKNOWN_SECONDS: Final = 5.0
# In each process. Hosts that were found lately are looked up in any case.
MOST_UNKNOWN_PER_SECOND: Final = 50
MOST_HOSTS: Final = 10_000


class Budget:
    """Bounds what requests with invented hosts cost: each host is looked up once in a while, and `most` of them each second."""

    def __init__(self, most: int = MOST_UNKNOWN_PER_SECOND, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._lock = threading.Lock()
        self._unknown: OrderedDict[str, float] = OrderedDict()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._second, self._looked_up = 0, 0

    def allows(self, domain: str) -> bool:
        """Return whether to look the domain up; if not, it was unknown a moment ago.

        Raises TooManyUnknownHosts in a second that has no look-up left: the domain may be a tenant's.
        """
        moment = self._clock()
        with self._lock:
            if domain in self._known:
                return True
            if moment - self._unknown.get(domain, -UNKNOWN_SECONDS) < UNKNOWN_SECONDS:
                return False
            if int(moment) != self._second:
                self._second, self._looked_up = int(moment), 0
            if self._looked_up >= self._most:
                raise TooManyUnknownHosts
            self._looked_up += 1
            return True

    def note(self, domain: str, *, is_known: bool) -> None:
        """Remember the result of a look-up. The tenant itself is read for every request."""
        with self._lock:
            hosts, other = (self._known, self._unknown) if is_known else (self._unknown, self._known)
            other.pop(domain, None)
            if is_known:
                self._known[domain] = None
            else:
                self._unknown[domain] = self._clock()
            hosts.move_to_end(domain)
            if len(hosts) > MOST_HOSTS:
                hosts.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._unknown.clear()
            self._known.clear()
            self._looked_up = 0


budget = Budget()
# Anyone can ask the domain check for any name: this must not use up the look-ups of requests to domains.
check_budget = Budget()


def find_host(domain: str, budget: Budget = budget) -> TenantContext | None:
    """Return the tenant whose sign-in domain this is, or was while the tenant still has the domain; else None.

    Raises TooManyUnknownHosts: it may be one all the same.
    """
    if _DOMAIN.fullmatch(domain) is None or not budget.allows(domain):
        return None
    try:
        tenant = lookup.find_by_domain(domain)
    except UnknownTenant:
        budget.note(domain, is_known=False)
        return None
    except (Unavailable, OperationalError, InterfaceError):
        # A tenant whose database is away uses up nothing of what others need.
        if lookup.is_known_domain(domain):
            budget.note(domain, is_known=True)
        raise
    budget.note(domain, is_known=True)
    return tenant


def tenant_at_host(request: HttpRequest) -> TenantContext | None:
    """Return the tenant whose sign-in domain the request was sent to; None on the platform's own hosts."""
    tenant: TenantContext | None = getattr(request, "tenant_at_host", None)
    return tenant


def is_at_former_domain(request: HttpRequest) -> bool:
    """Return whether the host is a domain that the tenant still has, and whose pages are elsewhere now."""
    tenant = tenant_at_host(request)
    return tenant is not None and tenant.sign_in_domain != getattr(request, "sign_in_domain", None)


class TenantHosts:
    """Give requests to sign-in domains the paths of tenants, and let SecurityMiddleware accept these hosts.

    ALLOWED_HOSTS lists the platform's hosts. Those cost no look-up; all others are sign-in domains or rejected.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse], budget: Budget = budget) -> None:
        self.get_response = get_response
        self._budget = budget
        self._probes = api_part().probes

    def __call__(self, request: HttpRequest) -> HttpResponse:
        host = _HOST.fullmatch(request.META.get("HTTP_HOST", ""))
        domain = host[1].lower().removesuffix(".") if host else ""
        request.is_platform_host = _is_platforms(domain)  # type: ignore[attr-defined]  # read by SecurityMiddleware
        # Metrics are only read. On a tenant's domain other methods get the same 404 as for every path that is not there.
        is_probe = request.path in self._probes and (request.path != metrics.PATH or request.method in ("GET", "HEAD"))
        if domain and not is_probe and not _is_platforms(domain):
            try:
                tenant = find_host(domain, self._budget)
            except TooManyUnknownHosts as error:
                return plain_response(request.path, error)
            if tenant is not None:
                request.tenant_at_host = tenant  # type: ignore[attr-defined]  # read by `tenant_at_host`
                request.sign_in_domain = domain  # type: ignore[attr-defined]  # read by SecurityMiddleware
                request.urlconf = settings.SIGN_IN_DOMAIN_URLCONF
        return self.get_response(request)


def _is_platforms(domain: str) -> bool:
    return domain in _lower_case(tuple(settings.ALLOWED_HOSTS)) or domain == _hostname(settings.BASE_URL)


@lru_cache(maxsize=8)
def _lower_case(hosts: tuple[str, ...]) -> frozenset[str]:
    return frozenset(host.lower() for host in hosts)


@lru_cache(maxsize=8)
def _hostname(address: str) -> str | None:
    return urlsplit(address).hostname

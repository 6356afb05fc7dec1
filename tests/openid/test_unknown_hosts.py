"""Requests to hosts that are neither the platform's nor a tenant's: they cost little and harm no tenant's domain."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from identity_platform.api.middleware import SecurityMiddleware
from tenants.addresses.hosts import UNKNOWN_SECONDS, Budget, TenantHosts, find_host
from tenants.checks import hosts_are_listed
from tenants.errors import TooManyUnknownHosts
from tests.openid.sign_in_domains import ApiAt, sign_in_domain
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.world import TestTenant, capture_statements


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def domain(new_tenant: Callable[[], TestTenant], name_server: DnsServer) -> str:
    return str(sign_in_domain(new_tenant(), name_server)["domain"])


def spend(budget: Budget, count: int) -> None:
    for number in range(count):
        assert find_host(f"n{number}.unknown.example", budget) is None


def test_unknown_hosts_are_looked_up_once_in_a_while(tenant: TestTenant, clock: Clock) -> None:
    budget = Budget(3, clock)
    with capture_statements() as seen:
        for _ in range(3):
            spend(budget, 3)
    assert seen.counts == (3, 0)
    clock.time += UNKNOWN_SECONDS
    with capture_statements() as again:
        spend(budget, 3)
    assert again.counts == (3, 0)


def test_look_ups_of_unknown_hosts_are_limited(tenant: TestTenant, clock: Clock) -> None:
    budget = Budget(3, clock)
    spend(budget, 3)
    with capture_statements() as seen, pytest.raises(TooManyUnknownHosts):
        find_host("another.unknown.example", budget)
    assert seen.counts == (0, 0)
    # What was unknown a moment ago still is.
    spend(budget, 3)
    clock.time += 1
    assert find_host("another.unknown.example", budget) is None


def test_known_domain_needs_no_budget(domain: str, clock: Clock) -> None:
    budget = Budget(3, clock)
    assert find_host(domain, budget) is not None
    spend(budget, 2)
    for number in range(5):
        with pytest.raises(TooManyUnknownHosts):
            find_host(f"m{number}.unknown.example", budget)
        assert find_host(domain, budget) is not None


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/signin",
            {
                "error": "Service Unavailable",
                "code": "too_many_unknown_hosts",
                "message": TooManyUnknownHosts.message,
            },
        ),
        ("/token", {"error": "temporarily_unavailable", "error_description": TooManyUnknownHosts.message}),
    ],
)
def test_host_over_the_budget_is_503(domain: str, clock: Clock, path: str, body: dict[str, str]) -> None:
    budget = Budget(1, clock)
    reached: list[HttpRequest] = []

    def view(request: HttpRequest) -> HttpResponse:
        reached.append(request)
        return HttpResponse()

    at_hosts = TenantHosts(view, budget)
    spend(budget, 1)
    response = at_hosts(RequestFactory().get(path, headers={"Host": domain}))
    assert (response.status_code, response.headers["Retry-After"], reached) == (503, "1", [])
    assert json.loads(response.content) == body
    clock.time += 1
    assert at_hosts(RequestFactory().get(path, headers={"Host": domain})).status_code == 200
    assert [request.urlconf for request in reached] == ["openid.domain_urls"]  # type: ignore[attr-defined]


def test_platform_hosts_cost_no_look_up(tenant: TestTenant, settings: Any) -> None:
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "Console.Platform.example"]
    with capture_statements() as seen:
        for host in ("localhost", "console.platform.example", "CONSOLE.platform.example"):
            assert ApiAt(host=host).get("/docs/").status_code == 200
        assert ApiAt(host="unknown.example").get("/uflow/live").status_code == 200
    assert seen.counts == (0, 0)


@pytest.mark.parametrize("path", ["/signin", "/uflow/live"])
def test_hsts_of_unknown_hosts_leaves_subdomains_alone(settings: Any, path: str) -> None:
    settings.SECURE_HSTS_SECONDS, settings.SECURE_HSTS_INCLUDE_SUBDOMAINS = 3600, True
    hosts = TenantHosts(SecurityMiddleware(lambda _: HttpResponse()))

    def policy(host: str) -> str:
        response = hosts(RequestFactory().get(path, headers={"Host": host}, secure=True))
        return str(response.headers["Strict-Transport-Security"])

    assert policy("login.unknown.example") == "max-age=3600"
    assert policy("localhost").startswith("max-age=3600; includeSubDomains")


@pytest.mark.parametrize("host", ["*", ".example.org", "*.example.org"])
def test_check_rejects_wildcard_hosts(settings: Any, host: str) -> None:
    settings.ALLOWED_HOSTS = ["id.example.org"]
    assert hosts_are_listed() == []
    settings.ALLOWED_HOSTS = ["id.example.org", host]
    (found,) = hosts_are_listed()
    assert (found.id, f"({host})" in found.msg, "one by one" in str(found.hint)) == ("tenants.E005", True, True)

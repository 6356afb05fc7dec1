"""One hundred calls a minute for each tenant, over all callers, addresses and workers."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY
from pytest_django.fixtures import Settings

from identity_platform.api.ratelimit import peek
from tests.identity_platform.api.private_valkey import Valkey
from tests.registry.conftest import SERVICES, Registry, as_client, as_end_user, at, lasting, with_room
from tests.registry.processes import Answer, Server
from tests.world import Api, TestTenant, unique_ip

CALLS, LINES = 500, 20


@pytest.fixture
def registry(new_tenant: Callable[[], TestTenant]) -> Registry:
    """The registry of a tenant whose rate-limit window does not end during a test."""
    return Registry(with_room(new_tenant, seconds=20).api)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_exactly_100_of_500_parallel_calls_pass(
    serve: Callable[..., Server], new_tenant: Callable[[], TestTenant], workers: int
) -> None:
    server = serve(workers=workers)
    tenant, other = with_room(new_tenant, seconds=45), with_room(new_tenant, seconds=45)
    Registry(other.api).create(name="other's")
    ends = peek(group="registry", key=f"tenant:{tenant.id}", limit=100, period=60).reset_at

    def flood(line_number: int) -> list[Answer]:
        line, responses = server.line(), []
        for number in range(CALLS // LINES):
            # Headers must neither free a caller from its limit nor use up another tenant's.
            forged = {
                "X-Forwarded-For": f"198.51.100.{number}",
                "X-Tenant-ID": str(other.id if number % 2 else uuid4()),
            }
            responses.append(server.call("GET", SERVICES, token=tenant.api.token, headers=forged, connection=line))
        line.close()
        return responses

    with ThreadPoolExecutor(LINES + 1) as pool:
        floods = [pool.submit(flood, number) for number in range(LINES)]
        beside = [server.call("GET", SERVICES, token=other.api.token) for _ in range(10)]
        responses = [response for done in floods for response in done.result()]

    assert time.time() < ends, "The window ended meanwhile: this run shows nothing."
    assert Counter(response.status_code for response in responses) == {200: 100, 429: 400}
    passed = [response for response in responses if response.status_code == 200]
    assert {response.json()["pagination"]["total"] for response in passed} == {0}
    assert sorted(int(response.headers["X-RateLimit-Remaining"]) for response in passed) == list(range(100))
    for response in responses:
        assert response.headers["X-RateLimit-Limit"] == "100"
        assert abs(int(response.headers["X-RateLimit-Reset"]) - ends) <= 1
    for response in responses:
        if response.status_code == 429:
            assert response.headers["Retry-After"] == "60"
            assert response.headers["X-RateLimit-Remaining"] == "0"
            assert response.json()["error"]["code"] == "RATE_LIMITED"
    assert [response.status_code for response in beside] == [200] * 10
    remaining = [left(response) for response in beside]
    assert remaining == list(range(remaining[0], remaining[0] - 10, -1))
    assert remaining[0] >= 98
    assert {response.json()["pagination"]["total"] for response in beside} == {1}


@pytest.fixture
def five(settings: Settings) -> None:
    """A low limit."""
    settings.LIMITS = {**settings.LIMITS, "registry": (5, 60), "anonymous_registry": (3, 60)}


def left(response: Any) -> int:
    return int(response.headers["X-RateLimit-Remaining"])


def test_rate_limit_headers_on_every_response(registry: Registry) -> None:
    service = registry.create()
    registry.bind(service)
    api, name = registry.api, service["name"]
    responses = [
        api.get(at(service)),
        api.post(SERVICES, raw=b"{"),
        api.post(SERVICES, raw=b"{}", content_type="text/plain"),
        api.get("/exsvc/debug/auth"),
        api.get(SERVICES, {"page": "0"}),
        api.get(f"{SERVICES}/unknown"),
        api.patch(SERVICES, {}),
        api.post(SERVICES, {"name": name, "type": "x", "base_url": "https://x.example"}),
        api.delete(at(service)),
    ]
    assert [response.status_code for response in responses] == [200, 400, 415, 200, 400, 404, 405, 409, 409]
    assert [left(response) for response in responses] == list(range(97, 88, -1))
    for response in responses:
        assert response.headers["X-RateLimit-Limit"] == "100"
        assert 0 <= int(response.headers["X-RateLimit-Reset"]) - time.time() <= 61


def test_rate_limit_headers_on_internal_error(registry: Registry) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE registry_service RENAME COLUMN description TO away")
        try:
            response = registry.api.get(SERVICES)
        finally:
            cursor.execute("ALTER TABLE registry_service RENAME COLUMN away TO description")
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "INTERNAL_ERROR"
    assert left(response) == 99


@pytest.mark.usefixtures("five")
def test_callers_of_one_tenant_share_its_limit(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    tenant, other = with_room(new_tenant, seconds=20), with_room(new_tenant, seconds=20)
    callers = [tenant.api, as_client(tenant, "services:read"), as_end_user(tenant, "services:read")]
    assert [left(caller.get(SERVICES)) for caller in callers] == [4, 3, 2]
    assert [callers[1].get("/exsvc/debug/auth").status_code, callers[2].delete(f"{SERVICES}/x").status_code] == [
        200,
        403,
    ]
    for caller in callers:
        response = caller.get(SERVICES)
        assert (response.status_code, response.headers["Retry-After"]) == (429, "60")
        assert response.json()["error"]["code"] == "RATE_LIMITED"
    assert left(other.api.get(SERVICES)) == 4
    # An operator who acts for the tenant has a limit of its own and uses none of the tenant's.
    acting = {"X-Tenant-ID": str(tenant.id)}
    assert operator.get(SERVICES, headers=acting).status_code == 200


@pytest.mark.usefixtures("five")
def test_caller_without_permissions_does_not_use_limit(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = with_room(new_tenant, seconds=20)
    # Anyone can register, but must not keep the tenant's back ends from their secrets.
    other = tenant.as_user(tenant.register())
    for caller in (lambda: tenant.as_user(tenant.register()), lambda: as_client(tenant, "endusers:read")):
        api = lasting(caller, seconds=10)
        assert [api.get(SERVICES).status_code for _ in range(6)] == [403] * 5 + [429]
        assert api.get("/exsvc/debug/auth").status_code == 429
    assert left(other.get("/exsvc/debug/auth")) == 4
    assert left(tenant.api.get(SERVICES)) == 4


@pytest.mark.usefixtures("five")
def test_limited_call_changes_nothing(registry: Registry) -> None:
    service = registry.create()
    for _ in range(4):
        registry.api.get(SERVICES)
    assert registry.api.delete(at(service)).status_code == 429
    assert registry.api.put(at(service), {"name": "x"}).status_code == 429
    from registry.models import Service

    assert Service.objects.get(pk=service["id"]).name == service["name"]


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize("authorization", [None, "Bearer nonsense", "Basic YTpi"])
def test_anonymous_calls_are_limited_by_address(registry: Registry, authorization: str | None) -> None:
    anonymous = Api()

    def call() -> Any:
        headers = {"X-Forwarded-For": unique_ip()} | ({"Authorization": authorization} if authorization else {})
        return anonymous.get(SERVICES, headers=headers)

    assert [call().status_code for _ in range(5)] == [401, 401, 401, 429, 429]
    refused = call()
    assert refused.headers["Retry-After"] == "60"
    assert refused.json()["error"]["code"] == "RATE_LIMITED"
    assert Api().get(SERVICES).status_code == 401
    # A valid token from the same address is not limited by a caller without one.
    assert Api(token=registry.api.token, address=anonymous.address).get(SERVICES).status_code == 200


def test_suspended_tenant_is_rejected(new_tenant: Callable[[], TestTenant]) -> None:
    from tenants.lifecycle.provisioning import suspend_tenant

    tenant = new_tenant()
    suspend_tenant(tenant_id=tenant.id)
    response = tenant.api.get(SERVICES)
    assert (response.status_code, response.json()["error"]["code"]) == (403, "FORBIDDEN")


# --- without Valkey --------------------------------------------------------------------------------------------------


@pytest.fixture
def valkey(settings: Settings) -> Iterator[Valkey]:
    """Limits counted in a Valkey of this test."""
    folder = Path(tempfile.mkdtemp(prefix="vk"))
    server = Valkey(folder)
    server.start()
    settings.REDIS_URL = server.url
    settings.CACHES = {
        **settings.CACHES,
        "ratelimit": {"BACKEND": "identity_platform.api.cache.RateLimitCache", "LOCATION": server.url},
    }
    yield server
    server.kill()
    shutil.rmtree(folder, ignore_errors=True)


def fallbacks() -> float:
    return REGISTRY.get_sample_value("identity_ratelimit_fallback_total") or 0.0


@pytest.mark.quiet_machine
@pytest.mark.usefixtures("five")
@pytest.mark.parametrize("fault", ["kill", "hang"])
def test_limit_without_valkey_is_per_process(registry: Registry, valkey: Valkey, fault: str) -> None:
    registry.create()
    before = fallbacks()
    getattr(valkey, fault)()
    began = time.monotonic()
    responses = [registry.api.get(SERVICES) for _ in range(7)]
    assert time.monotonic() - began < 15
    if fault == "hang":
        valkey.resume()
    assert [response.status_code for response in responses] == [200] * 5 + [429] * 2
    assert [left(response) for response in responses] == [4, 3, 2, 1, 0, 0, 0]
    assert fallbacks() >= before + 7
    assert REGISTRY.get_sample_value("identity_ratelimit_degraded", {}) is not None


@pytest.mark.usefixtures("five")
def test_flushed_valkey_starts_a_new_window(registry: Registry, valkey: Valkey) -> None:
    registry.create()
    assert [registry.api.get(SERVICES).status_code for _ in range(6)][-1] == 429
    valkey.client().flushall()
    response = registry.api.get(SERVICES)
    assert (response.status_code, left(response)) == (200, 4)

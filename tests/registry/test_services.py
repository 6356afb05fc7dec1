"""The specification's table of services: every row, its status, code, body and headers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.db.models import Count

from registry.models import Service, ServiceCount, ServiceCredential
from tenants.lifecycle.provisioning import delete_tenant
from tests.registry.conftest import SERVICES, Registry, at, credential_at, new_service, some_name
from tests.world import Api, TestTenant, capture_statements

RATE_HEADERS = {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}


def code(response: Any) -> str:
    assert set(response.json()) == {"error"}
    assert set(response.json()["error"]) <= {"code", "message", "details"}
    return str(response.json()["error"]["code"])


def test_created_service_is_returned_as_sent(registry: Registry) -> None:
    sent = new_service(
        description="Card payments\nin euro", api_version="2024-06", status="inactive", metadata={"a": [1, None, True]}
    )
    response = registry.api.post(SERVICES, sent)
    assert response.status_code == 201
    record = response.json()
    assert {name: record[name] for name in sent} == sent
    assert set(record) - set(sent) == {"id", "tenant_id", "created_at", "updated_at"}
    assert record["created_at"].endswith("Z")
    read = registry.api.get(at(record))
    assert read.status_code == 200
    assert read.json() == record
    assert set(response.headers) >= RATE_HEADERS
    assert set(read.headers) >= RATE_HEADERS


def test_create_service_defaults(registry: Registry) -> None:
    record = registry.create()
    assert (record["status"], record["description"], record["api_version"], record["metadata"]) == (
        "active",
        "",
        "",
        {},
    )


def test_create_service_ignores_tenant_id_and_times(registry: Registry, tenant: TestTenant) -> None:
    forged = {"id": str(uuid4()), "tenant_id": str(tenant.id), "created_at": "2001-01-01T00:00:00Z", "other": "x"}
    record = registry.create(**forged)
    assert not {record["id"], record["tenant_id"], record["created_at"]} & set(forged.values())
    changed = registry.api.put(at(record), forged).json()
    assert (changed["id"], changed["tenant_id"], changed["created_at"]) == (
        record["id"],
        record["tenant_id"],
        record["created_at"],
    )


def test_service_name_is_unique_in_tenant(registry: Registry, other_registry: Registry) -> None:
    name = some_name()
    registry.create(name=name)
    response = registry.api.post(SERVICES, new_service(name=f" {name} "))
    assert (response.status_code, code(response)) == (409, "SERVICE_EXISTS")
    assert "details" not in response.json()["error"]
    assert set(response.headers) >= RATE_HEADERS
    other_registry.create(name=name)


def test_service_names_do_not_differ_in_case_only(registry: Registry, other_registry: Registry) -> None:
    name = some_name("Payments")
    first = registry.create(name=name)
    taken = registry.api.post(SERVICES, new_service(name=name.upper()))
    assert (taken.status_code, code(taken)) == (409, "SERVICE_EXISTS")
    second = registry.create()
    renamed = registry.api.put(f"{SERVICES}/{second['id']}", {"name": name.lower()})
    assert (renamed.status_code, code(renamed)) == (409, "SERVICE_EXISTS")
    assert registry.api.put(f"{SERVICES}/{first['id']}", {"name": name.upper()}).status_code == 200
    assert other_registry.create(name=name)["name"] == name


@pytest.mark.parametrize("host", ["127.1", "0x7f000001", "2852039166", "0x7f.1", "1.2.3.4.", "1.2.3.4.5", "01.2.3.4"])
def test_base_url_rejects_other_forms_of_addresses(registry: Registry, host: str) -> None:
    response = registry.api.post(SERVICES, new_service(base_url=f"http://{host}/v1"))
    assert (response.status_code, list(response.json()["error"]["details"])) == (400, ["base_url"])


@pytest.mark.parametrize("host", ["192.0.2.7", "1password.example", "7.example", "0xyz.example.com", "[2001:db8::1]"])
def test_base_url_accepts_addresses_and_names(registry: Registry, host: str) -> None:
    assert registry.create(base_url=f"https://{host}/v1")["base_url"] == f"https://{host}/v1"


def test_update_service_changes_given_fields_only(registry: Registry) -> None:
    before = registry.create(description="old", metadata={"old": 1, "kept": 2})
    changes = {"status": "inactive", "metadata": {"new": 1}}
    response = registry.api.put(at(before), changes)
    assert response.status_code == 200
    assert response.json() == {**before, **changes, "updated_at": response.json()["updated_at"]}
    assert response.json()["updated_at"] > before["updated_at"]
    assert registry.api.get(at(before)).json() == response.json()


def test_update_service_changes_every_field(registry: Registry) -> None:
    before = registry.create()
    changes = {
        "name": some_name("renamed"),
        "description": "new",
        "type": "email",
        "base_url": "http://[::1]:8080/x?y=z",
        "api_version": "v2",
        "status": "inactive",
        "metadata": {},
    }
    assert registry.api.put(at(before), changes).json().items() >= changes.items()


def test_numbers_beyond_64_bits_survive(registry: Registry) -> None:
    """jsonb stores 1e300 as digits."""
    metadata = {"large": 1e300, "small": 1e-300, "list": [-2.5e20], "whole": 2**53, "flag": True}
    record = registry.create(metadata=metadata)
    assert registry.api.put(at(record), {"type": "other"}).json()["metadata"] == metadata
    assert json.loads(registry.api.get(at(record)).content, parse_int=float)["metadata"] == metadata
    service = registry.create()
    credential = registry.bind(service, {"key": 1e300}, metadata=metadata)
    assert registry.api.put(credential_at(service, credential), {}).json()["metadata"] == metadata
    assert registry.read(service)["credentials"][0]["secret"] == {"key": 1e300}


def test_rename_service_to_taken_name_is_409(registry: Registry) -> None:
    one, other = registry.create(), registry.create()
    response = registry.api.put(at(one), {"name": other["name"], "type": "changed"})
    assert (response.status_code, code(response)) == (409, "SERVICE_EXISTS")
    assert registry.api.get(at(one)).json() == one
    assert registry.api.put(at(one), {"name": one["name"]}).status_code == 200


def test_deleted_service_is_404(registry: Registry) -> None:
    record = registry.create()
    response = registry.api.delete(at(record))
    assert response.status_code == 200
    assert response.json() == {"message": response.json()["message"], "id": record["id"]}
    assert set(response.headers) >= RATE_HEADERS
    assert registry.api.get(at(record)).status_code == 404
    assert registry.create(name=record["name"])["id"] != record["id"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize("unknown", ["11111111-2222-4333-8444-555555555555", "1", "%00", "x" * 300, "null"])
def test_unknown_service_id_is_404(tenant: TestTenant, method: str, unknown: str) -> None:
    response = tenant.api.call(method, f"{SERVICES}/{unknown}", {} if method == "PUT" else None)
    assert (response.status_code, code(response)) == (404, "SERVICE_NOT_FOUND")
    assert "details" not in response.json()["error"]


@pytest.mark.parametrize(
    ("member", "value"),
    [
        *[("name", value) for value in ("", "  ", None, 7, ["x"], True, "x" * 256, "a\nb", "a\x1fb")],
        *[("type", value) for value in ("", None, 7, {}, "x" * 256)],
        *[
            ("base_url", value)
            for value in ("", None, "example.com", "ftp://example.com", "https://", "https://a:b@example.com", "/x", 1)
        ],
        *[("description", value) for value in (7, [])],
        *[("api_version", value) for value in (2, 1.5)],
        *[("status", value) for value in ("", "ACTIVE", "deleted", True)],
        *[("metadata", value) for value in ("{}", [], 1, {"x": "y" * 65_536})],
    ],
)
def test_create_service_names_invalid_field(new_tenant_once: TestTenant, member: str, value: object) -> None:
    created = new_tenant_once.api.post(SERVICES, new_service(**{member: value}))
    assert (created.status_code, code(created)) == (400, "VALIDATION_ERROR")
    assert list(created.json()["error"]["details"]) == [member]


@pytest.fixture(scope="module")
def new_tenant_once(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """A tenant for the many calls of one test, which would exceed the limit of a shared one."""
    from tests.world import build_tenant

    with django_db_blocker.unblock():
        return build_tenant("table")


def test_update_service_names_invalid_field(registry: Registry) -> None:
    before = registry.create()
    for wrong in ({"name": ""}, {"status": "gone"}, {"base_url": "x"}, {"metadata": []}, {"type": 5}):
        response = registry.api.put(at(before), wrong)
        assert (response.status_code, code(response)) == (400, "VALIDATION_ERROR")
        assert list(response.json()["error"]["details"]) == list(wrong)
    assert registry.api.get(at(before)).json() == before


def test_create_service_names_all_missing_fields(registry: Registry) -> None:
    response = registry.api.post(SERVICES, {})
    assert set(response.json()["error"]["details"]) == {"name", "type", "base_url"}


@pytest.mark.parametrize(
    ("raw", "content_type", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"name": "a", "name": "b"}', "application/json", 400),
        (b"{}", "text/plain", 415),
        (b'{"x": "' + b"y" * 1024 * 1024 + b'"}', "application/json", 413),
    ],
)
def test_malformed_body_returns_error_envelope(tenant: TestTenant, raw: bytes, content_type: str, status: int) -> None:
    response = tenant.api.post(SERVICES, raw=raw, content_type=content_type)
    assert response.status_code == status
    assert code(response)


# --- the list --------------------------------------------------------------------------------------------------------


def names(response: Any) -> list[str]:
    assert response.status_code == 200, response.content
    return [service["name"] for service in response.json()["services"]]


def test_service_list_pages_newest_first(registry: Registry) -> None:
    made = [registry.create()["name"] for _ in range(23)]
    first = registry.api.get(SERVICES)
    assert names(first) == made[:2:-1]
    assert first.json()["pagination"] == {"page": 1, "limit": 20, "total": 23, "total_pages": 2}
    assert set(first.headers) >= RATE_HEADERS
    assert names(registry.api.get(SERVICES, {"page": 2})) == made[2::-1]
    assert names(registry.api.get(SERVICES, {"page": 5, "limit": 5})) == made[2::-1]
    past = registry.api.get(SERVICES, {"page": 9, "limit": 7})
    assert past.json() == {"services": [], "pagination": {"page": 9, "limit": 7, "total": 23, "total_pages": 4}}


def test_listed_service_equals_read_service(registry: Registry) -> None:
    record = registry.create(metadata={"deep": {"er": [1.5, "ü"]}})
    assert registry.api.get(SERVICES).json()["services"] == [record]


def test_service_list_of_empty_tenant_is_empty(registry: Registry) -> None:
    assert registry.api.get(SERVICES).json() == {
        "services": [],
        "pagination": {"page": 1, "limit": 20, "total": 0, "total_pages": 0},
    }


def test_service_list_filters_by_type_and_status(registry: Registry) -> None:
    for type in ("payment", "Payments_EU", "email", "100%"):
        for status in ("active", "inactive"):
            registry.create(name=f"{type} {status}", type=type, status=status)

    def total(**query: Any) -> int:
        response = registry.api.get(SERVICES, query)
        assert len(names(response)) == response.json()["pagination"]["total"]
        return len(names(response))

    assert total() == 8
    assert total(status="active") == total(status="ACTIVE") == 4
    assert total(type="PAYMENT") == 2
    assert total(type="payment") == 2
    assert total(type="email") == 2
    assert total(type="100%") == 2
    for part in ("pay", "payment_", "%", "_", "payment%", "nothing"):
        assert total(type=part) == 0
    registry.create(name="Payment too", type="Payment", status="inactive")
    response = registry.api.get(SERVICES, {"type": "payment", "status": "inactive"})
    assert names(response) == ["Payment too", "payment inactive"]


def test_list_finds_a_service_by_its_name(registry: Registry, other_registry: Registry) -> None:
    other_registry.create(name="Stripe")
    first = registry.create(name="Stripe", type="payment")
    registry.create(name="Stripe_EU")

    def found(**query: Any) -> list[str]:
        response = registry.api.get(SERVICES, query)
        assert response.json()["pagination"]["total"] == len(response.json()["services"])
        return [record["id"] for record in response.json()["services"]]

    assert found(name="stripe") == found(name="STRIPE") == [first["id"]]
    assert found(name="stripe", type="PAYMENT") == found(name="stripe", status="active") == [first["id"]]
    assert found(name="stripe", status="inactive") == []
    assert found(name="strip") == found(name="%") == found(name="Stripe_E_") == []
    page = registry.api.get(SERVICES, {"name": "stripe", "page": 1, "limit": 1}).json()
    assert page["services"] == [registry.api.get(at(first)).json()]
    assert page["pagination"] == {"page": 1, "limit": 1, "total": 1, "total_pages": 1}


def test_type_is_at_most_255_characters(registry: Registry) -> None:
    longest = "t" * 255
    assert registry.create(type=longest)["type"] == longest
    assert len(names(registry.api.get(SERVICES, {"type": longest.upper()}))) == 1
    assert registry.api.post(SERVICES, new_service(type=longest + "t")).status_code == 400


def test_base_url_keeps_an_international_host_in_a_labels(registry: Registry) -> None:
    made = registry.create(base_url="https://b\u00fccher.example:8443/v1")
    assert made["base_url"] == "https://xn--bcher-kva.example:8443/v1"
    assert registry.api.get(at(made)).json()["base_url"] == made["base_url"]


def test_service_totals_follow_changes(registry: Registry) -> None:
    def totals() -> list[int]:
        queries: list[dict[str, str]] = [{}, {"status": "active"}, {"type": "one"}, {"type": "two", "status": "active"}]
        return [registry.api.get(SERVICES, query).json()["pagination"]["total"] for query in queries]

    first, second = registry.create(type="one"), registry.create(type="one")
    assert totals() == [2, 2, 2, 0]
    registry.api.put(at(first), {"type": "two"})
    assert totals() == [2, 2, 1, 1]
    registry.api.put(at(first), {"status": "inactive", "description": "x"})
    assert totals() == [2, 1, 1, 0]
    registry.api.delete(at(second))
    assert totals() == [1, 0, 0, 0]


@pytest.mark.parametrize(
    "query",
    [
        {"page": "0"},
        {"page": "x"},
        {"page": "-1"},
        {"limit": "0"},
        {"limit": "１２"},
        {"limit": "1_0"},
        {"status": "gone"},
        {"status": ""},
        {"type": ""},
    ],
)
def test_service_list_rejects_invalid_query(tenant: TestTenant, query: dict[str, str]) -> None:
    response = tenant.api.get(SERVICES, query)
    assert (response.status_code, code(response)) == (400, "VALIDATION_ERROR")
    assert list(response.json()["error"]["details"]) == list(query)


def test_service_list_caps_limit_and_accepts_far_pages(tenant: TestTenant) -> None:
    response = tenant.api.get(SERVICES, {"page": "9" * 40, "limit": "1000"})
    assert response.status_code == 200
    assert response.json()["services"] == []
    assert response.json()["pagination"]["limit"] == 100


# --- permissions --------------------------------------------------------------------------------------------------------

REALM = 'Bearer realm="api"'


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("POST", ""), ("GET", "/x"), ("PUT", "/x"), ("DELETE", "/x"), ("GET", "/x/credentials")],
)
@pytest.mark.parametrize(
    ("header", "challenge"),
    [
        (None, REALM),
        ("Bearer", REALM),
        ("Basic YTpi", REALM),
        ("Bearer x.y.z", 'Bearer error="invalid_token"'),
        ("Bearer a b", 'Bearer error="invalid_token"'),
    ],
)
def test_registry_requires_a_valid_token(api: Api, method: str, path: str, header: str | None, challenge: str) -> None:
    sent = {"Authorization": header} if header else {}
    response = api.call(method, SERVICES + path, headers=sent)
    assert (response.status_code, code(response)) == (401, "UNAUTHORIZED")
    assert response.headers["WWW-Authenticate"] == challenge
    assert not RATE_HEADERS & set(response.headers)


def test_unsupported_method_is_405(registry: Registry, api: Api) -> None:
    for caller in (registry.api, api):
        response = caller.patch(SERVICES, {})
        assert (response.status_code, code(response)) == (405, "METHOD_NOT_ALLOWED")
        assert set(response.headers["Allow"].split(", ")) >= {"GET", "POST"}
    assert set(registry.api.patch(SERVICES, {}).headers) >= RATE_HEADERS


def test_operator_names_tenant_of_service(operator: Api, registry: Registry, tenant: TestTenant) -> None:
    record = registry.create()
    acting = {"X-Tenant-ID": record["tenant_id"]}
    assert operator.get(at(record), headers=acting).json() == record
    elsewhere = operator.get(at(record), headers={"X-Tenant-ID": str(tenant.id)})
    assert (elsewhere.status_code, code(elsewhere)) == (404, "SERVICE_NOT_FOUND")
    nowhere = operator.get(SERVICES)
    assert (nowhere.status_code, code(nowhere)) == (400, "TENANT_REQUIRED")
    unknown = operator.get(SERVICES, headers={"X-Tenant-ID": str(uuid4())})
    assert unknown.status_code == 404
    odd = operator.get(SERVICES, headers={"X-Tenant-ID": "x"})
    assert (odd.status_code, code(odd)) == (400, "VALIDATION_ERROR")
    made = operator.post(SERVICES, new_service(), headers=acting)
    assert made.json()["tenant_id"] == record["tenant_id"]


def test_tenant_in_query_wins_over_header(operator: Api, registry: Registry, tenant: TestTenant) -> None:
    record = registry.create()
    stated, elsewhere = {"tenant_id": record["tenant_id"]}, {"X-Tenant-ID": str(tenant.id)}
    for path in (SERVICES, at(record), f"{at(record)}/credentials"):
        assert operator.get(path, stated).status_code == 200
        assert operator.get(path, stated, headers=elsewhere).json().get("error") is None
        wrong = operator.get(path, {"tenant_id": "x"}, headers=elsewhere)
        assert (wrong.status_code, list(wrong.json()["error"]["details"])) == (400, ["tenant_id"])
    assert operator.get(SERVICES, stated, headers=elsewhere).json()["services"] == [record]
    made = operator.post(f"{SERVICES}?tenant_id={record['tenant_id']}", new_service())
    assert made.json()["tenant_id"] == record["tenant_id"]


def test_query_counts(new_tenant: Callable[[], TestTenant]) -> None:
    """The caller's state is one statement; a read is one more."""
    registry = Registry(new_tenant().api)
    record = registry.create()

    def count(method: str, path: str, body: object = None) -> tuple[int, int]:
        with capture_statements() as seen:
            assert registry.api.call(method, path, body).status_code < 300
        return seen.counts

    assert count("GET", SERVICES) == (2, 0)
    assert count("GET", f"{SERVICES}?type=pay&status=active&page=2") == (2, 0)
    assert count("GET", f"{SERVICES}?name=one") == (2, 0)
    assert count("GET", f"{SERVICES}?page=1000") == (2, 0)
    assert count("GET", at(record)) == (2, 0)
    assert count("POST", SERVICES, new_service()) == (3, 0)
    assert count("PUT", at(record), {"type": "x"}) == (4, 0)
    assert count("GET", f"{at(record)}/credentials") == (2, 0)
    assert count("DELETE", at(record)) == (6, 0)
    assert count("GET", "/exsvc/debug/auth") == (1, 0)


def test_deleting_tenant_deletes_services_and_counts(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    registry = Registry(tenant.api)
    registry.bind(registry.create())
    delete_tenant(tenant_id=tenant.id)
    for model in (Service, ServiceCredential, ServiceCount):
        assert not model.objects.filter(tenant_id=tenant.id).exists()
    assert registry.api.get(SERVICES).status_code == 401


def test_service_totals_match_after_parallel_changes(new_tenant: Callable[[], TestTenant]) -> None:
    """Statements over many rows, as imports send them."""
    tenant = new_tenant()
    rows = [
        Service(tenant_id=tenant.id, name=f"n{n}", type=f"t{n % 7}", base_url="https://x.example") for n in range(500)
    ]
    Service.objects.bulk_create(rows)
    mine = Service.objects.filter(tenant_id=tenant.id)
    mine.filter(type="t1").update(status="inactive")
    mine.filter(type="t2").update(type="t3")
    mine.filter(type__in=["t4", "t5"]).delete()
    counts = ServiceCount.objects.filter(tenant_id=tenant.id)
    for keys, kept in ((("type", "status"), counts.exclude(type="")), (("status",), counts.filter(type=""))):
        counted = {tuple(row[k] for k in keys): row["n"] for row in mine.values(*keys).annotate(n=Count("id"))}
        assert {tuple(getattr(row, k) for k in keys): row.services for row in kept} == counted

"""Two tenants: neither can see, change, count or infer the records of the other."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from registry.models import Service, ServiceCredential
from tests.registry.conftest import SERVICES, Registry, as_client, as_end_user, at, credential_at, credentials_of
from tests.world import Api, TestTenant

OPERATIONS: list[tuple[str, str, Any]] = [
    ("GET", "", None),
    ("PUT", "", {"name": "mine now"}),
    ("PUT", "", {}),
    ("DELETE", "", None),
    ("GET", "/credentials", None),
    ("POST", "/credentials", {"name": "x", "secret": "y"}),
    ("PUT", "/credentials/{credential}", {"secret": "mine now"}),
    ("DELETE", "/credentials/{credential}", None),
    ("HEAD", "", None),
    ("PATCH", "", {}),
]


@pytest.mark.parametrize(("method", "path", "body"), OPERATIONS)
def test_id_of_other_tenant_is_like_an_unknown_id(
    tenant: TestTenant, other_tenant: TestTenant, method: str, path: str, body: Any
) -> None:
    theirs = Registry(other_tenant.api)
    service = theirs.create()
    credential = theirs.bind(service)

    def call(service_id: str, credential_id: str) -> tuple[int, bytes, set[str]]:
        place = f"{SERVICES}/{service_id}{path.format(credential=credential_id)}"
        response = tenant.api.call(method, place, body)
        return response.status_code, response.content, set(response.headers)

    foreign = call(service["id"], credential["id"])
    assert foreign == call(str(uuid4()), str(uuid4()))
    assert foreign[0] == (405 if method == "PATCH" else 404)
    assert Service.objects.get(pk=service["id"]).name == service["name"]
    assert ServiceCredential.objects.get(pk=credential["id"]).last_read_at is None


def test_other_tenants_credential_is_404_via_own_service(tenant: TestTenant, other_tenant: TestTenant) -> None:
    theirs, mine = Registry(other_tenant.api), Registry(tenant.api)
    credential = theirs.bind(theirs.create())
    service = mine.create()

    def call(method: str, credential_id: str) -> tuple[int, bytes]:
        response = tenant.api.call(method, f"{credentials_of(service)}/{credential_id}", {})
        return response.status_code, response.content

    for method in ("PUT", "DELETE"):
        assert call(method, credential["id"]) == call(method, str(uuid4()))
    assert ServiceCredential.objects.filter(pk=credential["id"], status="active").exists()


def test_tenant_header_applies_to_operators_only(tenant: TestTenant, other_tenant: TestTenant) -> None:
    theirs = Registry(other_tenant.api).create()
    forged = {"X-Tenant-ID": str(other_tenant.id)}
    callers = [tenant.api, as_client(tenant, "services:read"), as_end_user(tenant, "services:read")]
    for caller in callers:
        response = caller.get(SERVICES, headers=forged)
        assert {service["tenant_id"] for service in response.json()["services"]} <= {str(tenant.id)}
        assert caller.get(at(theirs), headers=forged).status_code == 404
    made = Registry(Api(token=tenant.api.token)).api.post(
        SERVICES, {"name": f"n {uuid4()}", "type": "x", "base_url": "https://x.example"}, headers=forged
    )
    assert made.json()["tenant_id"] == str(tenant.id)


def test_lists_and_totals_hold_one_tenant_only(registry: Registry, other_registry: Registry) -> None:
    mine = [registry.create(type="payment") for _ in range(2)]
    [other_registry.create(type="payment") for _ in range(3)]
    for query in ({}, {"type": "PAYMENT"}, {"status": "active"}):
        response = registry.api.get(SERVICES, query).json()
        assert {service["id"] for service in response["services"]} == {service["id"] for service in mine}
        assert response["pagination"]["total"] == 2


def test_upper_case_id_is_accepted(registry: Registry) -> None:
    service = registry.create()
    credential = registry.bind(service)
    assert registry.api.get(f"{SERVICES}/{service['id'].upper()}").json() == service
    path = credential_at({"id": service["id"].upper()}, {"id": credential["id"].upper()})
    assert registry.api.put(path, {}).status_code == 200

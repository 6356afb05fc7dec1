"""Secrets of services: stored sealed, returned to permitted callers only, each read audited."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import close_old_connections, connection

from identity_platform.audit.models import PlatformEvent
from registry.models import Service, ServiceCredential
from tests.copies import change_client
from tests.registry.conftest import (
    SERVICES,
    Registry,
    as_client,
    as_end_user,
    at,
    credential_at,
    credentials_of,
    new_service,
    some_name,
)
from tests.world import Api, TestTenant, capture_statements

MEMBERS = {
    "id",
    "name",
    "type",
    "status",
    "secret",
    "metadata",
    "created_at",
    "updated_at",
    "expires_at",
    "last_read_at",
}


def code(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def later(**time: float) -> str:
    return (datetime.now(UTC) + timedelta(**time)).isoformat()


def audit_events(target: dict[str, Any]) -> list[tuple[str, str]]:
    rows = PlatformEvent.objects.filter(target_id=target["id"]).order_by("id")
    return list(rows.values_list("action", "outcome"))


@pytest.mark.parametrize("secret", ["s3cret", "two\nlines\tü", "x" * 65_536, {"id": "a", "key": {"n": [1, None]}}, {}])
def test_stored_secret_is_returned_unchanged(registry: Registry, secret: Any) -> None:
    service = registry.create()
    made = registry.bind(service, secret, type="oauth2", metadata={"owner": "ops"}, expires_at=later(days=1))
    response = registry.api.get(credentials_of(service))
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    assert set(response.headers) >= {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
    found = response.json()
    assert set(found) == {"service_id", "service_name", "service_type", "base_url", "credentials", "retrieved_at"}
    assert (found["service_id"], found["service_name"]) == (service["id"], service["name"])
    assert (found["service_type"], found["base_url"]) == (service["type"], service["base_url"])
    (credential,) = found["credentials"]
    assert set(credential) == MEMBERS
    assert credential["secret"] == secret
    assert {**made, "last_read_at": found["retrieved_at"], "secret": secret} == {
        **credential,
        "service_id": service["id"],
    }


def test_only_the_read_returns_the_secret(registry: Registry) -> None:
    service = registry.create()
    credential = registry.bind(service, "planted-once")
    responses = [
        registry.api.post(credentials_of(service), {"name": credential["name"], "secret": "planted-twice"}),
        registry.api.put(credential_at(service, credential), {"secret": "planted-thrice"}),
        registry.api.put(credential_at(service, credential), {"secret": "planted-last", "status": "planted-status"}),
        registry.api.get(at(service)),
        registry.api.get(SERVICES),
        registry.api.delete(at(service)),
        registry.api.delete(credential_at(service, credential)),
    ]
    assert [response.status_code for response in responses] == [409, 200, 400, 200, 200, 409, 200]
    assert not any(b"planted" in response.content for response in responses)
    assert "secret" not in credential


def test_each_read_secret_is_audited(tenant: TestTenant, registry: Registry) -> None:
    service = registry.create()
    one, two = registry.bind(service), registry.bind(service)
    reader = Api(token=registry.api.token)
    reader.get(credentials_of(service), headers={"X-Request-ID": "request-of-this-test"})
    rows = PlatformEvent.objects.filter(action="service_credential.read", target_id__in=[one["id"], two["id"]])
    assert {row.target_id for row in rows} == {one["id"], two["id"]}
    for row in rows:
        assert (row.address, row.request_id, row.actor_kind) == (reader.address, "request-of-this-test", "admin")
        assert str(row.tenant_id) == service["tenant_id"]
        assert row.target_kind == "service_credential"
        assert row.details == {"service_id": service["id"]}
        assert row.actor_id


def test_unaudited_secret_is_not_returned(registry: Registry) -> None:
    service = registry.create()
    credential = registry.bind(service, "stays-here")
    with connection.cursor() as cursor:
        # A constraint that only this credential's row violates, so other tests are not affected.
        broken = f"target_id <> '{credential['id']}'"
        cursor.execute(f"ALTER TABLE audit_platformevent ADD CONSTRAINT no_such_row CHECK ({broken}) NOT VALID")
        try:
            response = registry.api.get(credentials_of(service))
        finally:
            cursor.execute("ALTER TABLE audit_platformevent DROP CONSTRAINT no_such_row")
    assert response.status_code >= 500
    assert b"stays-here" not in response.content
    assert ServiceCredential.objects.get(pk=credential["id"]).last_read_at is None


def test_read_sets_last_read_at(registry: Registry) -> None:
    service = registry.create()
    assert registry.bind(service)["last_read_at"] is None
    first = registry.read(service)["credentials"][0]["last_read_at"]
    assert registry.read(service)["credentials"][0]["last_read_at"] > first


def test_rotated_secret_replaces_the_old(registry: Registry) -> None:
    service = registry.create()
    credential = registry.bind(service, "old")
    response = registry.api.put(credential_at(service, credential), {"secret": {"new": 1}, "metadata": {"m": 1}})
    assert response.status_code == 200
    assert response.json() == {**credential, "metadata": {"m": 1}, "updated_at": response.json()["updated_at"]}
    assert response.json()["updated_at"] > credential["updated_at"]
    assert registry.read(service)["credentials"][0]["secret"] == {"new": 1}
    assert audit_events(credential) == [
        ("service_credential.created", "success"),
        ("service_credential.rotated", "success"),
        ("service_credential.read", "success"),
    ]


def test_revoked_credential_has_no_secret_until_activated(registry: Registry) -> None:
    service = registry.create()
    credential = registry.bind(service, "kept")
    response = registry.api.put(credential_at(service, credential), {"status": "revoked"})
    assert response.json()["status"] == "revoked"
    assert registry.read(service)["credentials"] == []
    (shown,) = registry.read(service, status="revoked")["credentials"]
    assert (shown["id"], shown["status"], shown["secret"]) == (credential["id"], "revoked", None)
    registry.api.put(credential_at(service, credential), {"status": "active"})
    assert registry.read(service)["credentials"][0]["secret"] == "kept"


def test_expired_credential_returns_no_secret(registry: Registry) -> None:
    service = registry.create()
    credential = registry.bind(service, expires_at=later(hours=1))
    response = registry.api.put(credential_at(service, credential), {"expires_at": "2020-01-01T00:00:00Z"})
    assert (response.status_code, response.json()["status"]) == (200, "expired")
    assert registry.read(service)["credentials"] == []
    (shown,) = registry.read(service, status="expired")["credentials"]
    assert (shown["status"], shown["secret"], shown["last_read_at"]) == ("expired", None, None)
    assert registry.api.delete(at(service)).status_code == 200


def test_expiry_can_be_removed(registry: Registry) -> None:
    service = registry.create()
    credential = registry.bind(service, expires_at=later(hours=1))
    registry.api.put(credential_at(service, credential), {"expires_at": "2020-01-01T00:00:00Z"})
    assert registry.api.put(credential_at(service, credential), {"expires_at": None}).json()["status"] == "active"
    assert len(registry.read(service)["credentials"]) == 1


def test_deleted_credential_is_404(registry: Registry) -> None:
    service = registry.create()
    credential = registry.bind(service)
    response = registry.api.delete(credential_at(service, credential))
    assert response.status_code == 200
    assert response.json() == {"message": response.json()["message"], "id": credential["id"]}
    assert code(registry.api.delete(credential_at(service, credential))) == (404, "CREDENTIAL_NOT_FOUND")
    assert not ServiceCredential.objects.filter(pk=credential["id"]).exists()


def test_credential_name_is_unique_per_service(registry: Registry) -> None:
    one, other = registry.create(), registry.create()
    name = registry.bind(one)["name"]
    assert code(registry.api.post(credentials_of(one), {"name": name, "secret": "x"})) == (409, "CREDENTIAL_EXISTS")
    registry.bind(other, name=name)


def test_delete_service_with_active_credentials_is_409(registry: Registry) -> None:
    service = registry.create()
    credentials = [registry.bind(service) for _ in range(3)]
    registry.api.put(credential_at(service, credentials[0]), {"status": "revoked"})
    response = registry.api.delete(at(service))
    assert code(response) == (409, "SERVICE_IN_USE")
    assert response.json()["error"]["details"] == {"active_credentials": 2}
    assert registry.api.get(at(service)).json() == service
    for credential in credentials[1:]:
        registry.api.put(credential_at(service, credential), {"status": "revoked"})
    assert registry.api.delete(at(service)).status_code == 200
    assert not ServiceCredential.objects.filter(service_id=service["id"]).exists()


@pytest.mark.parametrize(
    ("member", "value"),
    [
        *[("name", value) for value in (None, "", " ", 1, "x" * 256)],
        *[("secret", value) for value in (None, "", 1, 1.5, True, ["s3cret"], "x" * 65_537, {"x": "y" * 65_536})],
        *[("type", value) for value in ("", "password", 1)],
        *[("metadata", value) for value in ([], "x")],
        *[("expires_at", value) for value in ("", "tomorrow", 1, "2020-01-01T00:00:00Z", "2030-01-01")],
    ],
)
def test_create_credential_names_invalid_fields(table: tuple[Registry, Any], member: str, value: object) -> None:
    registry, service = table
    response = registry.api.post(credentials_of(service), {"name": some_name(), "secret": "s3cret", member: value})
    assert code(response) == (400, "VALIDATION_ERROR")
    assert list(response.json()["error"]["details"]) == [member]
    assert b"s3cret" not in response.content


@pytest.fixture(scope="module")
def table(django_db_setup: None, django_db_blocker: Any) -> tuple[Registry, Any]:
    """A service for the many calls of one parametrized test."""
    from tests.world import build_tenant

    with django_db_blocker.unblock():
        registry = Registry(build_tenant("table").api)
        return registry, registry.create()


def test_update_credential_names_invalid_fields(registry: Registry) -> None:
    service = registry.create()
    credential = registry.bind(service)
    for wrong in ({"secret": ""}, {"secret": 5}, {"status": "expired"}, {"status": ""}, {"expires_at": "x"}):
        response = registry.api.put(credential_at(service, credential), wrong)
        assert code(response) == (400, "VALIDATION_ERROR")
        assert list(response.json()["error"]["details"]) == list(wrong)
    assert registry.read(service)["credentials"][0]["secret"] == "s3cret"
    assert code(registry.api.get(credentials_of(service), {"status": "all"})) == (400, "VALIDATION_ERROR")


def test_unknown_services_and_credentials(registry: Registry) -> None:
    service, other = registry.create(), registry.create()
    elsewhere = registry.bind(other)
    unknown = {"id": str(uuid4())}
    for bad in (unknown, {"id": "x"}):
        assert code(registry.api.get(credentials_of(bad))) == (404, "SERVICE_NOT_FOUND")
        assert code(registry.api.post(credentials_of(bad), {"name": "x", "secret": "y"})) == (404, "SERVICE_NOT_FOUND")
        assert code(registry.api.put(credential_at(bad, unknown), {})) == (404, "SERVICE_NOT_FOUND")
        assert code(registry.api.delete(credential_at(bad, unknown))) == (404, "SERVICE_NOT_FOUND")
    for bad in (unknown, {"id": "x"}, elsewhere):
        assert code(registry.api.put(credential_at(service, bad), {"secret": "z"})) == (404, "CREDENTIAL_NOT_FOUND")
        assert code(registry.api.delete(credential_at(service, bad))) == (404, "CREDENTIAL_NOT_FOUND")


def test_read_secrets_query_count_is_constant(registry: Registry) -> None:
    one, many = registry.create(), registry.create()
    registry.bind(one)
    for _ in range(8):
        registry.bind(many)
    counts = []
    for service in (one, many):
        with capture_statements() as seen:
            registry.read(service)
        counts.append(seen.counts)
    # The caller's state, the service with its credentials, the time of reading with the audit rows.
    assert counts == [(3, 0), (3, 0)]


# --- permissions to read secrets ----------------------------------------------------------------------------------------------


def test_service_and_secret_permissions_are_separate(tenant: TestTenant) -> None:
    admin = Registry(tenant.api)
    service = admin.create()
    credential = admin.bind(service)
    about, secrets = as_client(tenant, "services:read"), as_client(tenant, "services:credentials")
    assert about.get(at(service)).status_code == 200
    assert code(about.get(credentials_of(service))) == (403, "FORBIDDEN")
    assert code(secrets.get(at(service))) == (403, "FORBIDDEN")
    assert secrets.get(credentials_of(service)).json()["credentials"][0]["secret"] == "s3cret"
    row = PlatformEvent.objects.filter(target_id=credential["id"], action="service_credential.read").get()
    assert row.actor_kind == "client"


def test_client_reading_secrets_cannot_change_them(tenant: TestTenant) -> None:
    admin = Registry(tenant.api)
    service = admin.create()
    credential = admin.bind(service)
    reads, manages = (
        as_client(tenant, "services:credentials"),
        as_client(tenant, "services:credentials", "services:write"),
    )
    assert reads.post(credentials_of(service), {"name": "x", "secret": "y"}).status_code == 403
    assert reads.put(credential_at(service, credential), {"secret": "y"}).status_code == 403
    assert reads.delete(credential_at(service, credential)).status_code == 403
    assert manages.put(credential_at(service, credential), {"secret": "y"}).status_code == 200


def test_token_without_scope_cannot_read_secrets(tenant: TestTenant) -> None:
    service = Registry(tenant.api).create()
    token = as_client(tenant, "services:read", granted=("services:read", "services:credentials"))
    assert token.get(credentials_of(service)).status_code == 403


@pytest.mark.parametrize(
    ("permission", "passes"),
    [
        ("services:read", {"list", "retrieve"}),
        ("services:write", {"create", "update"}),
        ("services:delete", {"destroy"}),
        ("services:credentials", {"credentials", "bind", "rotate", "remove"}),
        ("services:other", set()),
    ],
)
def test_end_user_permissions_come_from_roles(tenant: TestTenant, permission: str, passes: set[str]) -> None:
    caller = as_end_user(tenant, permission)
    service = {"id": str(uuid4())}
    responses = {
        "list": caller.get(SERVICES),
        "create": caller.post(SERVICES, new_service()),
        "retrieve": caller.get(at(service)),
        "update": caller.put(at(service), {}),
        "destroy": caller.delete(at(service)),
        "credentials": caller.get(credentials_of(service)),
        "bind": caller.post(credentials_of(service), {"name": "x", "secret": "y"}),
        "rotate": caller.put(credential_at(service, service), {}),
        "remove": caller.delete(credential_at(service, service)),
    }
    assert {name for name, response in responses.items() if response.status_code != 403} == passes
    assert all(code(response) == (403, "FORBIDDEN") for name, response in responses.items() if name not in passes)


def test_removed_permission_ends_with_next_call(tenant: TestTenant) -> None:
    from userflow.accounts.models import Client

    service = Registry(tenant.api).create()
    caller = as_client(tenant, "services:credentials")
    assert caller.get(credentials_of(service)).status_code == 200
    for client in Client.objects.filter(tenant_id=tenant.id, scopes=["services:credentials"]):
        change_client(client.pk, scopes=[])
    assert caller.get(credentials_of(service)).status_code == 403


# --- rows that were tampered with --------------------------------------------------------------------------------------


def test_swapped_secrets_do_not_open(registry: Registry) -> None:
    one, two = registry.create(), registry.create()
    first, second = registry.bind(one, "first"), registry.bind(two, "second")
    good = registry.bind(one, "good")
    rows = {row["id"]: ServiceCredential.objects.get(pk=row["id"]).secret for row in (first, second)}
    ServiceCredential.objects.filter(pk=first["id"]).update(secret=rows[second["id"]])
    ServiceCredential.objects.filter(pk=second["id"]).update(secret=rows[first["id"]])
    found = registry.read(one)
    assert [row["secret"] for row in found["credentials"]] == ["good"]
    assert found["unreadable"] == [first["id"]]
    assert registry.read(two)["credentials"] == []
    assert audit_events(first)[-1] == ("service_credential.unreadable", "failed")
    assert audit_events(good)[-1] == ("service_credential.read", "success")
    assert ServiceCredential.objects.get(pk=first["id"]).last_read_at is None


def test_row_moved_to_other_service_does_not_open(registry: Registry) -> None:
    one, mine = registry.create(), registry.create()
    credential = registry.bind(one, "theirs")
    ServiceCredential.objects.filter(pk=credential["id"]).update(service_id=mine["id"])
    response = registry.api.get(credentials_of(mine))
    assert response.json()["credentials"] == []
    assert b"theirs" not in response.content
    assert audit_events(credential)[-1] == ("service_credential.unreadable", "failed")


@pytest.mark.parametrize("moved", ["credential", "credential and its tenant", "service", "service and credential"])
def test_row_moved_to_other_tenant_does_not_open(registry: Registry, other_registry: Registry, moved: str) -> None:
    theirs, mine = registry.create(), other_registry.create()
    credential = registry.bind(theirs, "theirs")
    rows, services = ServiceCredential.objects.filter(pk=credential["id"]), Service.objects.filter(pk=theirs["id"])
    where = theirs
    if moved.startswith("credential"):
        where = mine
        rows.update(service_id=mine["id"])
    else:
        services.update(tenant_id=mine["tenant_id"])
    if moved.endswith(("its tenant", "and credential")):
        rows.update(tenant_id=mine["tenant_id"])
    response = other_registry.api.get(credentials_of(where))
    assert response.status_code == 200
    assert response.json()["credentials"] == []
    assert response.json()["unreadable"] == [credential["id"]]
    assert b"theirs" not in response.content
    assert audit_events(credential)[-1] == ("service_credential.unreadable", "failed")


def test_unreadable_secret_can_be_replaced(registry: Registry) -> None:
    service = registry.create()
    credential = registry.bind(service)
    ServiceCredential.objects.filter(pk=credential["id"]).update(secret=b"\x01damaged")
    assert registry.read(service)["unreadable"] == [credential["id"]]
    registry.api.put(credential_at(service, credential), {"secret": "again"})
    found = registry.read(service)
    assert [row["secret"] for row in found["credentials"]] == ["again"]
    assert "unreadable" not in found


# --- parallel calls ------------------------------------------------------------------------------------------------


def at_once(number: int, call: Any) -> list[Any]:
    """Return the responses of parallel calls; each call gets its number."""
    barrier = threading.Barrier(number)

    def run(index: int) -> Any:
        barrier.wait()
        try:
            return call(index)
        finally:
            connection.close()
            close_old_connections()

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


def statuses(responses: list[Any]) -> list[int]:
    return sorted(response.status_code for response in responses)


def test_parallel_creates_make_one_service(registry: Registry) -> None:
    body = new_service()
    responses = at_once(20, lambda _: Api(token=registry.api.token).post(SERVICES, body))
    assert statuses(responses) == [201] + [409] * 19
    assert registry.api.get(SERVICES).json()["pagination"]["total"] == 1


def test_parallel_renames_rename_one_service(registry: Registry) -> None:
    services = [registry.create() for _ in range(20)]
    name = some_name("wanted")
    responses = at_once(20, lambda n: Api(token=registry.api.token).put(at(services[n]), {"name": name}))
    assert statuses(responses) == [200] + [409] * 19
    assert Service.objects.filter(name=name).count() == 1


def test_parallel_creates_make_one_credential(registry: Registry) -> None:
    service = registry.create()
    body = {"name": some_name(), "secret": "x"}
    responses = at_once(20, lambda _: Api(token=registry.api.token).post(credentials_of(service), body))
    assert statuses(responses) == [201] + [409] * 19


def test_create_credential_races_with_delete_service(registry: Registry) -> None:
    for _ in range(8):
        service = registry.create()
        calls = [
            lambda service=service: Api(token=registry.api.token).delete(at(service)),
            lambda service=service: Api(token=registry.api.token).post(
                credentials_of(service), {"name": "x", "secret": "y"}
            ),
        ]
        deleted, bound = at_once(2, lambda n, calls=calls: calls[n]())
        assert (deleted.status_code, bound.status_code) in {(200, 404), (409, 201)}


def test_parallel_reads_do_not_deadlock(registry: Registry) -> None:
    service = registry.create()
    for _ in range(5):
        registry.bind(service)
    responses = at_once(12, lambda _: Api(token=registry.api.token).get(credentials_of(service)))
    assert statuses(responses) == [200] * 12
    rows = PlatformEvent.objects.filter(action="service_credential.read", details__service_id=service["id"])
    assert rows.count() == 12 * 5

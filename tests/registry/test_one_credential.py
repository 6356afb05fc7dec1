"""Read one credential by its id; an inactive service returns no secrets."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction

from registry.actions import delete_credential, update_credential
from registry.models import ServiceCredential
from tests.registry.conftest import Registry, as_client, at, credential_at, credentials_of
from tests.registry.test_credentials import MEMBERS, audit_events, code
from tests.world import TestTenant, capture_statements


def test_one_credential_is_read_with_its_secret(registry: Registry) -> None:
    service = registry.create()
    registry.bind(service, "another")
    credential = registry.bind(service, {"user": "u", "key": "k"})
    response = registry.api.get(credential_at(service, credential))
    assert response.status_code == 200
    assert set(response.json()) == MEMBERS | {"service_id"}
    assert (response.json()["id"], response.json()["secret"]) == (credential["id"], {"user": "u", "key": "k"})
    assert response.headers["Cache-Control"] == "no-store"


def test_reading_one_credential_is_audited_and_counted(registry: Registry) -> None:
    service = registry.create()
    one, two = registry.bind(service), registry.bind(service)
    before = registry.api.get(at(service)).headers["X-RateLimit-Remaining"]
    response = registry.api.get(credential_at(service, one))
    assert int(response.headers["X-RateLimit-Remaining"]) == int(before) - 1
    assert audit_events(one)[-1] == ("service_credential.read", "success")
    assert [action for action, _ in audit_events(two)] == ["service_credential.created"]
    assert ServiceCredential.objects.get(pk=one["id"]).last_read_at is not None
    assert ServiceCredential.objects.get(pk=two["id"]).last_read_at is None


def test_one_revoked_credential_has_no_secret(registry: Registry) -> None:
    service = registry.create()
    credential = registry.bind(service)
    registry.api.put(credential_at(service, credential), {"status": "revoked"})
    response = registry.api.get(credential_at(service, credential)).json()
    assert (response["status"], response["secret"], response["last_read_at"]) == ("revoked", None, None)
    assert "service_credential.read" not in [action for action, _ in audit_events(credential)]


def test_one_credential_of_another_service_or_tenant_is_404(registry: Registry, other_registry: Registry) -> None:
    mine, sibling, theirs = registry.create(), registry.create(), other_registry.create()
    credential, foreign = registry.bind(mine), other_registry.bind(theirs)
    unknown = {"id": str(uuid4())}
    for other in (registry.bind(sibling), foreign, unknown, {"id": "x"}):
        assert code(registry.api.get(credential_at(mine, other))) == (404, "CREDENTIAL_NOT_FOUND")
    for service in (theirs, unknown, {"id": "x"}):
        assert code(registry.api.get(credential_at(service, foreign))) == (404, "SERVICE_NOT_FOUND")
    assert code(other_registry.api.get(credential_at(mine, credential))) == (404, "SERVICE_NOT_FOUND")
    assert audit_events(foreign) == [("service_credential.created", "success")]


def test_one_credential_requires_permission(tenant: TestTenant) -> None:
    registry = Registry(tenant.api)
    service = registry.create()
    path = credential_at(service, registry.bind(service))
    assert as_client(tenant, "services:credentials").get(path).status_code == 200
    assert code(as_client(tenant, "services:read", "services:write").get(path)) == (403, "FORBIDDEN")


def test_one_altered_credential_is_409_and_audited(registry: Registry) -> None:
    service = registry.create()
    credential = registry.bind(service)
    ServiceCredential.objects.filter(pk=credential["id"]).update(secret=b"\x01damaged")
    assert registry.api.get(credential_at(service, credential)).status_code == 409
    assert audit_events(credential)[-1] == ("service_credential.unreadable", "failed")


def test_one_credential_costs_as_much_as_the_list(registry: Registry) -> None:
    service = registry.create()
    credential = registry.bind(service)
    counts = []
    for path in (credentials_of(service), credential_at(service, credential)):
        registry.api.get(path)
        with capture_statements() as seen:
            registry.api.get(path)
        counts.append(seen.counts)
    # The caller's state, the credentials, the time of reading with the audit rows.
    assert counts == [(3, 0), (3, 0)]


def test_inactive_service_returns_no_secret(registry: Registry) -> None:
    service = registry.create()
    credential, revoked = registry.bind(service, "kept-in"), registry.bind(service)
    registry.api.put(credential_at(service, revoked), {"status": "revoked"})
    registry.api.put(at(service), {"status": "inactive"})
    refused: list[Any] = [
        registry.api.get(path) for path in (credentials_of(service), credential_at(service, credential))
    ]
    assert [code(response) for response in refused] == [(409, "SERVICE_INACTIVE")] * 2
    assert not [response for response in refused if b"kept-in" in response.content]
    assert "service_credential.read" not in [action for action, _ in audit_events(credential)]
    # Records without secrets are still shown.
    assert [row["id"] for row in registry.read(service, status="revoked")["credentials"]] == [revoked["id"]]
    assert registry.api.get(credential_at(service, revoked)).json()["secret"] is None


def test_service_returns_secrets_again_once_active(registry: Registry) -> None:
    service = registry.create(status="inactive")
    credential = registry.bind(service, "back")
    assert code(registry.api.get(credentials_of(service))) == (409, "SERVICE_INACTIVE")
    registry.api.put(at(service), {"status": "active"})
    assert registry.api.get(credential_at(service, credential)).json()["secret"] == "back"
    assert [row["secret"] for row in registry.read(service)["credentials"]] == ["back"]


def revoke(tenant_id: Any, service: Any, credential: Any) -> None:
    update_credential(
        tenant_id=tenant_id, service_id=service["id"], credential_id=credential["id"], changes={"status": "revoked"}
    )


def rotate(tenant_id: Any, service: Any, credential: Any) -> None:
    update_credential(
        tenant_id=tenant_id, service_id=service["id"], credential_id=credential["id"], changes={"secret": "new"}
    )


def delete(tenant_id: Any, service: Any, credential: Any) -> None:
    delete_credential(tenant_id=tenant_id, service_id=service["id"], credential_id=credential["id"])


@pytest.mark.parametrize(
    ("change", "one", "listed", "reads"),
    [
        (rotate, "new", ["other", "new"], 2),
        (revoke, None, ["other"], 0),
        (delete, "CREDENTIAL_NOT_FOUND", ["other"], 0),
    ],
)
def test_secret_that_changes_while_it_is_read_is_read_again(
    registry: Registry, change: Callable[..., None], one: Any, listed: list[str], reads: int
) -> None:
    service = registry.create()
    credential, other = registry.bind(service, "old"), registry.bind(service, "other")
    api = registry.api
    with ThreadPoolExecutor(2) as pool:
        with transaction.atomic():
            change(service["tenant_id"], service, credential)
            # Both have read the old secret once they wait for the row to record that.
            calls = [
                pool.submit(in_thread, api, path)
                for path in (credential_at(service, credential), credentials_of(service))
            ]
            wait_for_two_at_the_row()
        single, every = (call.result().json() for call in calls)
    assert single.get("secret") == one or single["error"]["code"] == one
    assert [row["secret"] for row in every["credentials"]] == listed
    # Nothing is recorded for a secret that was not returned.
    assert [action for action, _ in audit_events(credential)].count("service_credential.read") == reads
    assert [action for action, _ in audit_events(other)].count("service_credential.read") == 1


def in_thread(api: Any, path: str) -> Any:
    try:
        return api.get(path)
    finally:
        connection.close()


def wait_for_two_at_the_row() -> None:
    deadline = time.monotonic() + 30
    waiting = 0
    with connection.cursor() as cursor:
        while waiting < 2:
            assert time.monotonic() < deadline
            # A transaction sees one state of the activity otherwise.
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
                " AND query LIKE '%registry_servicecredential%'"
            )
            [waiting] = cursor.fetchone()
            time.sleep(0.01)

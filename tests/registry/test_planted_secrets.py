"""Store two hundred secrets, then search everything that was written anywhere for them."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection, connections

from identity_platform.api.valkey import client as valkey
from identity_platform.audit.models import PlatformEvent
from tenants.entering.context import in_tenant
from tests.registry.conftest import SERVICES, Registry, at, credential_at, credentials_of, some_name
from tests.registry.processes import Server
from tests.world import TestTenant

PLANTED = 200
TENANTS = 4
NOT_OURS = ("pg_catalog", "information_schema")


def forms_of(secret: str) -> list[str]:
    """Return the forms in which a secret could leak: plain, hex, and base64 at each of its three offsets."""
    raw = secret.encode()
    found = [secret, raw.hex(), secret[::-1]]
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw).decode()
        # The characters at both ends depend on the adjacent bytes.
        found += [encoded[4:-4], encoded[4:-4].replace("+", "-").replace("/", "_")]
    return found


def dump(alias: str) -> Iterator[str]:
    """Return every row of every table as text, as pg_dump writes it; bytes as hex."""
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT format('%%I.%%I', schemaname, tablename) FROM pg_tables WHERE schemaname <> ALL(%s)",
            [list(NOT_OURS)],
        )
        for (table,) in cursor.fetchall():
            cursor.execute(f"SELECT t::text FROM {table} AS t")
            for (row,) in cursor.fetchall():
                yield f"{table} {row}"


def plant(registry: Registry, send: Callable[..., Any], hidden: list[str]) -> None:
    """Store secrets in every possible way, including rejected ones, and read them."""
    service = registry.create()
    for number, secret in enumerate(hidden):
        shape: Any = secret if number % 2 else {"id": "x", "key": {"private": secret}}
        name = some_name("key")
        match number % 5:
            case 0 | 1:
                send("POST", credentials_of(service), {"name": name, "secret": shape})
            case 2:
                made = send("POST", credentials_of(service), {"name": name, "secret": "before"}).json()
                send("PUT", credential_at(service, made), {"secret": shape})
            case 3:
                send("POST", credentials_of(service), {"name": "", "secret": shape, "expires_at": "x"})
            case 4:
                send("POST", credentials_of({"id": "unknown"}), {"name": name, "secret": [secret]})
    response = send("GET", credentials_of(service))
    assert response.status_code == 200
    assert sum(secret in response.content.decode() for secret in hidden) == sum(n % 5 < 3 for n in range(len(hidden)))
    send("GET", at(service))
    send("GET", SERVICES)
    send("DELETE", at(service))


@pytest.mark.timeout(300)
def test_dumps_logs_and_audit_hold_no_secret(
    serve: Callable[..., Server], new_tenant: Callable[[], TestTenant]
) -> None:
    server = serve(workers=1, LOG_LEVEL="DEBUG")
    hidden = [f"{secrets.token_hex(9)}+{secrets.token_hex(9)}" for _ in range(PLANTED)]
    tenants = [new_tenant() for _ in range(TENANTS)]
    for number, tenant in enumerate(tenants):

        def send(method: str, path: str, body: Any = None, tenant: TestTenant = tenant) -> Any:
            return server.call(method, path, body, token=tenant.api.token)

        plant(Registry(tenant.api), send, hidden[number::TENANTS])
    reads = PlatformEvent.objects.filter(action="service_credential.read", tenant_id__in=[h.id for h in tenants])
    assert reads.count() == PLANTED * 3 // 5
    server.end()

    forms = [form for secret in hidden for form in forms_of(secret)]
    assert len({form for form in forms if len(form) > 20}) >= 5 * PLANTED
    written = {"log": server.log.read_text(), "global database": "\n".join(dump("default"))}
    for tenant in tenants:
        with in_tenant(tenant.id):
            written[f"database of {tenant.id}"] = "\n".join(dump("tenant"))
    written["valkey"] = everything_in_valkey()
    # Each searched place contains what it must contain.
    assert "POST" in written["log"]
    assert "service_credential.read" in written["global database"]
    assert all("userflow_role" in text for name, text in written.items() if name.startswith("database of"))
    found = [(place, form) for place, text in written.items() for form in forms if form in text]
    assert found == []


def everything_in_valkey() -> str:
    server = valkey()
    parts = []
    for key in server.scan_iter(match=f"*{settings.CACHES['ratelimit']['KEY_PREFIX']}*"):
        parts.append(f"{key!r} {server.dump(key)!r}")
    return "\n".join(parts)


def test_pg_stat_statements_hold_no_secret(registry: Registry) -> None:
    """The driver puts values into statements, so the end of the last statement must not contain the secret."""
    secret = secrets.token_hex(16)
    service = registry.create()
    registry.bind(service, secret)
    registry.read(service)
    with connection.cursor() as cursor:
        cursor.execute("SELECT string_agg(query, ' ') FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        assert secret not in (cursor.fetchone()[0] or "")


def test_openapi_shows_no_secret_of_a_tenant(registry: Registry) -> None:
    secret = secrets.token_hex(16)
    registry.bind(registry.create(), secret)
    document = registry.api.get("/schema/").content.decode()
    assert "/exsvc/api/v1/services/{service_id}/credentials" in document
    assert secret not in document


def test_database_error_does_not_repeat_a_secret(serve: Callable[..., Server], registry: Registry) -> None:
    secret = secrets.token_hex(16)
    service = registry.create()
    server = serve(workers=1, LOG_LEVEL="DEBUG")
    with psycopg.connect(_url(), autocommit=True) as raw:
        raw.execute("ALTER TABLE registry_servicecredential RENAME COLUMN metadata TO away")
        try:
            response = server.call(
                "POST", credentials_of(service), {"name": "x", "secret": secret}, token=registry.api.token
            )
        finally:
            raw.execute("ALTER TABLE registry_servicecredential RENAME COLUMN away TO metadata")
    server.end()
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "INTERNAL_ERROR"
    log = server.log.read_text()
    assert "fault" in log
    assert not [form for form in forms_of(secret) if form in log or form.encode() in response.content]


def _url() -> str:
    from tests.registry.processes import environment

    return environment()["DATABASE_URL"]

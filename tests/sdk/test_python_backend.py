"""sdk/python for back ends: tokens of the application, registry credentials, webhooks."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from identity_sdk import (
    ApiError,
    ClientCredentials,
    IdentityError,
    Registry,
    Verifier,
    WebhookInvalid,
    verify_webhook,
)
from tests.sdk.readme import example, names_of
from tests.userflow.sessions.clients import make_client
from tests.userflow.webhooks.conftest import consumer as consumer
from tests.userflow.webhooks.conftest import deliver, listen
from tests.userflow.webhooks.consumer import Consumer
from tests.world import Api, TestTenant


def test_client_token_is_cached_and_replaced_when_revoked(
    base: str, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, asked = make_client(tenant), list[str]()
    http = httpx2.Client(event_hooks={"request": [lambda request: asked.append(request.url.path)]}, timeout=60)
    credentials = ClientCredentials(base, client["client_id"], client["client_secret"], http=http)
    url = f"{base}/authmgr/validate"
    with httpx2.Client(auth=credentials, timeout=60) as application:
        assert [application.get(url).json()["kind"] for _ in range(3)] == ["client"] * 3
        assert len(asked) == 1
        Api(token=credentials.token()).post("/authmgr/logout", {})
        monkeypatch.setattr("identity_sdk.backend.NEW", 0)
        assert application.get(url).status_code == 200
    assert len(asked) == 2

    async def call() -> int:
        async with httpx2.AsyncClient(auth=credentials, timeout=60) as application:
            return (await application.get(url)).status_code

    assert asyncio.run(call()) == 200
    assert len(asked) == 2


def test_wrong_secret_and_scope_are_errors(base: str, tenant: TestTenant) -> None:
    client = make_client(tenant)
    for secret, scope, expected in (
        ("ics_wrong", None, (401, "invalid_client")),
        (client["client_secret"], "admins:write", (400, "invalid_scope")),
    ):
        with pytest.raises(ApiError) as error:
            ClientCredentials(base, client["client_id"], secret, scope=scope).token()
        assert (error.value.status, error.value.code) == expected


def test_registry_reads_credentials(base: str, tenant: TestTenant, service: str) -> None:
    client = make_client(tenant)
    registry = Registry(base, ClientCredentials(base, client["client_id"], client["client_secret"]))
    found = registry.credential(service, "Live key")
    assert (found.secret, found.base_url) == ({"key": "sk-0815"}, "https://pay.example.com")
    assert (found.metadata, found.expires_at) == ({"region": "eu"}, None)
    assert "sk-0815" not in repr(found)
    for names in ((service, "Test key"), ("Unknown service", "Live key")):
        with pytest.raises(IdentityError, match="has no"):
            registry.credential(*names)


def test_registry_errors_have_codes(base: str, tenant: TestTenant, service: str) -> None:
    client = make_client(tenant, scopes=["services:read"])
    registry = Registry(base, ClientCredentials(base, client["client_id"], client["client_secret"]))
    with pytest.raises(ApiError) as error:
        registry.credentials(service)
    assert (error.value.status, error.value.code) == (403, "FORBIDDEN")
    assert error.value.challenge == 'Bearer error="insufficient_scope", scope="services:credentials"'


def test_readme_reads_a_credential(
    base: str, tenant: TestTenant, service: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client = make_client(tenant)
    values = {"CLIENT_ID": client["client_id"], "CLIENT_SECRET": client["client_secret"], "Payments": service}
    names_of(example("python", "Call from a back end", base_url=base, **values))
    assert capsys.readouterr().out.endswith("https://pay.example.com Live key\n")


def test_delivered_webhook_is_verified(new_tenant: Callable[[], TestTenant], consumer: Consumer, settings: Any) -> None:
    settings.WEBHOOK_ALLOWED_NETWORKS, settings.WEBHOOK_PLAIN_HTTP = ["127.0.0.0/8"], True
    listening = listen(new_tenant(), consumer)
    person = listening.home.register()
    deliver()
    (seen,) = consumer.seen
    event = verify_webhook(listening.secret, seen.body, seen.headers)
    assert (event.id, event.type, event.data["user_id"]) == (seen.id, "end_user.created", str(person.id))
    wrong = (
        {"webhook-signature": "v1,AAAA"},
        {"webhook-signature": "?"},
        {"webhook-timestamp": "1"},
        {"webhook-id": "x"},
    )
    for headers in wrong:
        with pytest.raises(WebhookInvalid):
            verify_webhook(listening.secret, seen.body, {**seen.headers, **headers})
    for body, headers in ((seen.body + b" ", seen.headers), (b"\xff", seen.headers), (seen.body, {})):
        with pytest.raises(WebhookInvalid):
            verify_webhook(listening.secret, body, headers)
    names = names_of(example("python", "Receive webhooks", WEBHOOK_SECRET=listening.secret))
    with TestClient(names["app"]) as client:
        assert client.post("/hooks", content=seen.body, headers=seen.headers).status_code == 204
        assert client.post("/hooks", content=b"{}", headers=seen.headers).status_code == 400
        assert client.post("/hooks", content=b" " * 1_048_577).status_code == 413
    assert names["seen"] == {seen.id: ("end_user.created", event.data)}


def test_token_for_a_resource_opens_that_api_only(base: str, issuer: str, tenant: TestTenant) -> None:
    client, resource = make_client(tenant, audiences=["https://api.example.com"]), "https://api.example.com"
    secret = client["client_id"], client["client_secret"]
    token = ClientCredentials(base, *secret, issuer=issuer, resource=resource).token()
    assert Verifier(issuer, audience=resource).verify(token).id == client["client_id"]
    assert Api(token=token).get("/authmgr/validate").status_code == 401
    with pytest.raises(ApiError) as error:
        ClientCredentials(base, *secret, issuer=issuer, resource="https://other.example.com").token()
    assert error.value.code == "invalid_target"

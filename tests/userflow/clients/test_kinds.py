"""Kinds of applications: the defaults of new clients, over the API as in the console."""

from typing import Any

import pytest

from tests.world import TestTenant
from userflow.accounts.client_fields import CONFIDENTIAL, PUBLIC
from userflow.accounts.models import Client
from userflow.clients.kinds import DEVICE, KINDS, MACHINE, NATIVE, SINGLE_PAGE, WEB, kind_of, new_client_fields

DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
REDIRECTS = {
    SINGLE_PAGE: ["https://app.example.com/back", "http://localhost:3000/back"],
    WEB: ["https://app.example.com/back"],
    NATIVE: ["com.example.app:/back"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_api_accepts_the_defaults_of_each_kind(tenant: TestTenant, kind: str) -> None:
    stated = {"name": f"A {kind} application", "redirect_uris": REDIRECTS.get(kind, [])}
    response = tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", new_client_fields(KINDS[kind], stated))
    assert response.status_code == 201, response.content
    client = Client.objects.get(pk=response.json()["client_id"])
    assert kind_of(client) == KINDS[kind]
    assert client.allowed_origins == (
        ["https://app.example.com", "http://localhost:3000"] if kind == SINGLE_PAGE else []
    )


def test_stated_fields_replace_the_defaults() -> None:
    stated = {"grant_types": ["authorization_code"], "allowed_origins": ["https://b.example"]}
    fields = new_client_fields(KINDS[SINGLE_PAGE], {**stated, "redirect_uris": ["https://a.example/"]})
    assert {name: fields[name] for name in stated} == stated


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, SINGLE_PAGE),
        ({"redirect_uris": ["http://127.0.0.1/back"]}, NATIVE),
        ({"redirect_uris": ["http://127.0.0.1.example/back"]}, SINGLE_PAGE),
        ({"redirect_uris": ["http://[::1]:7000/"], "allowed_origins": ["http://localhost:3000"]}, SINGLE_PAGE),
        ({"grant_types": [DEVICE_CODE]}, DEVICE),
        ({"type": CONFIDENTIAL}, WEB),
        ({"type": CONFIDENTIAL, "scopes": ["services:read"]}, MACHINE),
        ({"type": CONFIDENTIAL, "scopes": ["services:read"], "redirect_uris": ["https://a.example/"]}, WEB),
        ({"type": CONFIDENTIAL, "grant_types": [DEVICE_CODE]}, DEVICE),
    ],
)
def test_kind_of_a_client_that_was_made_otherwise(fields: dict[str, Any], kind: str) -> None:
    looks_like = kind_of(Client(**fields))
    assert (looks_like.name, looks_like.type) == (kind, fields.get("type", PUBLIC))

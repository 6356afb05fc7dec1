"""The copy of a client in its tenant's database is equal to the global row after each change."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections
from django.db.models import F

from tenants.entering.context import in_tenant
from tenants.models import TenantDatabase
from tests.tenants.faults.test_one_tenant import gone
from tests.tenants.records import client_copies, commits_fail, differing
from tests.tenants.test_consistency import check
from tests.tenants.test_records import round_of_all
from tests.userflow.clients.keys import key_set, new_key, public_jwk
from tests.userflow.clients.test_clients import path
from tests.userflow.sessions.clients import make_client, own_token
from tests.world import Api, TestTenant, assert_created
from userflow.accounts.models import Client, TenantClient
from userflow.sessions import client_uses

New = Callable[[], TestTenant]
# What only the admin API shows, or what the copy has of its own.
ONLY_GLOBAL = {"tenant", "created_at", "updated_at", "last_used_at"}
ONLY_COPY = {"applied_at", "applied_epoch"}


def new_client(tenant: TestTenant, **fields: Any) -> str:
    body = {"name": "Shop", "type": "confidential", **fields}
    return str(assert_created(tenant.api.post(path(tenant), body))["id"])


def test_copy_has_all_columns_of_a_client() -> None:
    client, copy = ({column.name for column in model._meta.concrete_fields} for model in (Client, TenantClient))
    assert client - copy == ONLY_GLOBAL
    assert copy - client == ONLY_COPY


def test_new_clients_are_copied(new_tenant: New) -> None:
    tenant, other = new_tenant(), new_tenant()
    client_id = new_client(tenant, redirect_uris=["https://shop.example/back"], tags=["web"])
    copy, row = client_copies(tenant)[client_id], Client.objects.get(pk=client_id)
    assert (copy.name, copy.redirect_uris, copy.tags) == ("Shop", ["https://shop.example/back"], ["web"])
    assert bytes(copy.secret_digest or b"") == bytes(row.secret_digest or b"") != b""
    assert (copy.revision, row.revision) == (1, 1)
    assert differing(tenant) == differing(other) == []
    assert list(client_copies(other)) == [str(other.client_id)]


CHANGES: dict[str, Callable[[Api, str], Any]] = {
    "name": lambda api, at: api.patch(at, {"name": "Renamed"}),
    "redirect URIs": lambda api, at: api.patch(at, {"redirect_uris": ["https://shop.example/new"]}),
    "key": lambda api, at: api.patch(
        at, {"token_endpoint_auth_method": "private_key_jwt", "jwks_uri": "https://shop.example/keys"}
    ),
    "first party": lambda api, at: api.patch(at, {"first_party": True}),
    "security profile": lambda api, at: api.patch(
        at, {"security_profile": "fapi2", "jwks": key_set(public_jwk(new_key()))}
    ),
    "logout address": lambda api, at: api.patch(at, {"backchannel_logout_uri": "https://shop.example/logout"}),
    "secret": lambda api, at: api.post(f"{at}/secret", {}),
    "deactivated": lambda api, at: api.patch(f"{at}/deactivate", {}),
    "deactivated by PATCH": lambda api, at: api.patch(at, {"active": False}),
    "activated": lambda api, at: [api.patch(f"{at}/{verb}", {}) for verb in ("deactivate", "activate")][-1],
    "deleted": lambda api, at: api.delete(at),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_change_of_client_is_copied(change: Callable[[Api, str], Any], new_tenant: New) -> None:
    tenant, other = new_tenant(), new_tenant()
    client_id, untouched = new_client(tenant), new_client(other)
    response = change(tenant.api, path(tenant, client_id))
    assert response.status_code == 200, response.content
    assert differing(tenant) == differing(other) == []
    assert (client_id in client_copies(tenant)) == Client.objects.filter(pk=client_id).exists()
    assert untouched in client_copies(other)


def test_end_of_all_tokens_is_copied(new_tenant: New) -> None:
    tenant = new_tenant()
    client = make_client(tenant)
    assert Api(token=own_token(client)).post("/authmgr/logout", {"all": True}).status_code == 200
    assert client_copies(tenant)[client["id"]].generation == 2
    assert differing(tenant) == []


def test_use_of_a_client_is_no_change(new_tenant: New) -> None:
    tenant = new_tenant()
    client = make_client(tenant)
    own_token(client)
    client_uses.store()
    assert Client.objects.get(pk=client["id"]).last_used_at is not None
    assert (client_copies(tenant)[client["id"]].revision, differing(tenant)) == (1, [])


WIDENING: dict[str, Callable[[Api, str], Any]] = {
    "name": CHANGES["name"],
    "redirect URIs": CHANGES["redirect URIs"],
    "secret": CHANGES["secret"],
    "activated": lambda api, at: api.patch(f"{at}/activate", {}),
    "created": lambda api, at: api.post(at.rpartition("/")[0], {"name": "Never"}),
}


@pytest.mark.parametrize("change", WIDENING.values(), ids=WIDENING)
def test_change_needs_the_database(change: Callable[[Api, str], Any], new_tenant: New) -> None:
    tenant = new_tenant()
    client_id = new_client(tenant)
    if change is WIDENING["activated"]:
        tenant.api.patch(f"{path(tenant, client_id)}/deactivate", {})
    before = list(Client.objects.filter(tenant_id=tenant.id).order_by("pk").values())
    with gone(tenant):
        assert change(tenant.api, path(tenant, client_id)).status_code == 503
    assert list(Client.objects.filter(tenant_id=tenant.id).order_by("pk").values()) == before
    assert differing(tenant) == []


@pytest.mark.parametrize("state", ["moving", "migrating"])
def test_change_needs_a_tenant_without_job(state: str, new_tenant: New) -> None:
    tenant = new_tenant()
    client_id = new_client(tenant)
    mapping = TenantDatabase.objects.filter(pk=tenant.id)
    mapping.update(status=state)
    changed, deactivated = (CHANGES[name](tenant.api, path(tenant, client_id)) for name in ("name", "deactivated"))
    mapping.update(status="active")
    assert (changed.status_code, changed.json()["code"], deactivated.status_code) == (503, "tenant_busy", 200)
    assert (Client.objects.get(pk=client_id).name, Client.objects.get(pk=client_id).active) == ("Shop", False)
    round_of_all()
    assert differing(tenant) == []


@pytest.mark.parametrize("name", ["deactivated", "deactivated by PATCH", "deleted"])
def test_rights_are_taken_away_without_the_database(name: str, new_tenant: New) -> None:
    tenant = new_tenant()
    client_id = new_client(tenant)
    with gone(tenant):
        response = CHANGES[name](tenant.api, path(tenant, client_id))
        assert response.status_code == 200, response.content
    assert not Client.objects.filter(pk=client_id, active=True).exists()
    assert client_copies(tenant)[client_id].active
    assert len(differing(tenant)) == 1
    round_of_all()
    assert differing(tenant) == []
    assert client_id not in client_copies(tenant) or not client_copies(tenant)[client_id].active


@pytest.mark.parametrize("name", ["name", "secret", "deactivated"])
def test_interrupted_change_is_mended(name: str, new_tenant: New) -> None:
    tenant = new_tenant()
    client_id = new_client(tenant)
    row = Client.objects.get(pk=client_id)
    with commits_fail("userflow_client"):
        assert CHANGES[name](tenant.api, path(tenant, client_id)).status_code == 503
    assert client_copies(tenant)[client_id].revision == row.revision + 1
    code, said = check(tenant, repair=True, yes=True)
    assert (code, "client record: repaired" in said) == (0, True)
    copy = client_copies(tenant)[client_id]
    assert (copy.name, bytes(copy.secret_digest or b""), copy.active) == (
        row.name,
        bytes(row.secret_digest or b""),
        True,
    )
    assert (copy.revision, differing(tenant)) == (row.revision + 2, [])


def test_interrupted_creation_is_mended(new_tenant: New) -> None:
    tenant = new_tenant()
    with commits_fail("userflow_client"):
        assert tenant.api.post(path(tenant), {"name": "Interrupted"}).status_code == 503
    assert len(client_copies(tenant)) == 2
    assert check(tenant, repair=True, yes=True)[0] == 0
    assert (list(client_copies(tenant)), differing(tenant)) == ([str(tenant.client_id)], [])


def test_concurrent_changes_leave_equal_copies(new_tenant: New) -> None:
    tenant = new_tenant()
    client_id = new_client(tenant)
    before = client_copies(tenant)[client_id].revision

    def change(number: int) -> int:
        api = Api(token=tenant.api.token)
        try:
            at = path(tenant, client_id)
            return int(
                (api.post(f"{at}/secret", {}) if number % 2 else api.patch(at, {"name": f"Shop {number}"})).status_code
            )
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(change, range(12))) == {200}
    assert differing(tenant) == []
    assert client_copies(tenant)[client_id].revision == before + 12


def test_newer_copies_are_not_overwritten_silently(new_tenant: New) -> None:
    tenant = new_tenant()
    changed, lost = new_client(tenant), new_client(tenant)
    with in_tenant(tenant.id):
        TenantClient.objects.filter(pk=changed).update(name="Lost", revision=9)
        TenantClient.objects.filter(pk=lost).update(applied_epoch=F("applied_epoch") - 1)
    # As if the global database were older than the client.
    Client.objects.filter(pk=lost).delete()
    code, said = check(tenant, repair=True, yes=True)
    assert code == 1
    assert "newer client record" in said
    assert f"{changed} (revision 9, globally 1: name)" in said
    assert f"{lost} (revision 1, globally none)" in said
    round_of_all()
    assert (client_copies(tenant)[changed].name, lost in client_copies(tenant)) == ("Lost", True)
    assert check(tenant, repair=True, overwrite_newer=True, yes=True)[0] == 0
    assert (client_copies(tenant)[changed].name, lost in client_copies(tenant)) == ("Shop", False)
    assert differing(tenant) == []

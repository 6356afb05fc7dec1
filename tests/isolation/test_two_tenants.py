"""Two tenants: for every operation, neither can see, change, count or infer what the other stores.

The operations are read from the API document, so a new endpoint is in this test on the day it is written.
"""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from tests.userflow.mailbox import mails_to
from tests.world import Api, TestTenant, build_tenant, sign_in_admin

# Calls that name no tenant and return no user's data.
PUBLIC = ("/uflow/health", "/uflow/ready", "/uflow/live", "/.well-known/", "/schema/", "/docs/")


def operations() -> list[tuple[str, str]]:
    document = Client().get("/schema/", headers={"Host": "localhost"}).json()
    return [
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method in methods
        if not path.startswith(PUBLIC)
    ]


@pytest.fixture(scope="module")
def pair(django_db_setup: None, django_db_blocker: Any) -> Iterator[tuple[TestTenant, TestTenant, str]]:
    """A tenant with a secret word in everything it stores, and another tenant."""
    with django_db_blocker.unblock():
        mine, theirs = build_tenant("mine"), build_tenant("theirs")
        word = f"word{secrets.token_hex(8)}"
        person = theirs.register(f"{word}@example.com", name=word)
        theirs.api.put(f"/uflow/user/enduser/{theirs.id}/{person.id}", {"metadata": {"note": word}})
        theirs.api.post(
            "/uflow/directory/configs",
            {"kind": "entra_id", "name": word, "directory_tenant_id": word, "application_id": word, "secret": word},
        )
        yield mine, theirs, word


def filled(path: str, tenant: TestTenant, user_id: object) -> str:
    """The path with ids of that tenant in its slots."""
    slots = {"{tenant_id}": tenant.id, "{user_id}": user_id, "{id}": user_id, "{service_id}": user_id}
    for slot, value in slots.items():
        path = path.replace(slot, str(value))
    while "{" in path:
        head, _, rest = path.partition("{")
        path = f"{head}{user_id}{rest.partition('}')[2]}"
    return path


@pytest.mark.parametrize(("method", "path"), operations(), ids=lambda value: str(value))
def test_no_operation_shows_other_tenants_data(
    method: str, path: str, pair: tuple[TestTenant, TestTenant, str]
) -> None:
    mine, theirs, word = pair
    people = theirs.api.get("/uflow/user/enduser/list", {"tenant_id": str(theirs.id)}).json()
    user_id = people["users"][0]["id"]
    body: dict[str, Any] = {
        "tenant_id": str(theirs.id),
        "user_id": user_id,
        "client_id": str(theirs.client_id),
        "email": f"{word}@example.com",
        "active": False,
        "confirm": theirs.slug,
        "page": 1,
    }
    # The calls themselves may sign the caller out, so every operation has callers of its own.
    admin = sign_in_admin(mine.admin.username)["access_token"]
    for token in (None, admin, mine.as_user(mine.register()).token):
        response = Api(token=token).call(
            method,
            filled(path, theirs, user_id),
            None if method == "GET" else body,
            query={"tenant_id": str(theirs.id)} if method == "GET" else None,
            headers={"X-Tenant-ID": str(theirs.id)},
        )
        assert response.status_code < 500
        # A response may repeat the address of the request, and nothing else of the other tenant.
        assert word not in response.content.decode(errors="replace").replace(body["email"], "")
        if token and "{tenant_id}" in path:
            assert response.status_code in (403, 404)
    after = theirs.api.get("/uflow/user/enduser/list", {"tenant_id": str(theirs.id)}).json()
    assert after == people


def test_other_tenants_passkey_domain_cannot_be_claimed(
    pair: tuple[TestTenant, TestTenant, str], operator: Api
) -> None:
    mine, theirs, _ = pair
    domain, page = f"d-{secrets.token_hex(5)}.example", "/uflow/admin/tenants/"
    held = {"webauthn_rp_id": domain, "webauthn_origins": [f"https://login.{domain}"]}
    assert operator.patch(f"{page}{theirs.id}", {"settings": held}).status_code == 200
    for wanted in ({"webauthn_rp_id": domain}, {"webauthn_origins": [f"https://login.{domain}"]}):
        response = operator.patch(f"{page}{mine.id}", {"settings": wanted})
        assert (response.status_code, theirs.slug in response.text) == (409, False)
    assert operator.get(f"{page}{theirs.id}").json()["settings"].items() >= held.items()
    assert not operator.get(f"{page}{mine.id}").json()["settings"].keys() & held.keys()
    operator.patch(f"{page}{theirs.id}", {"settings": dict.fromkeys(held)})


def test_admin_resets_stay_on_the_platforms_pages(pair: tuple[TestTenant, TestTenant, str], operator: Api) -> None:
    pages = ("https://mine.example/reset", "https://theirs.example/reset")
    for tenant, page in zip(pair[:2], pages, strict=True):
        set_page = {"settings": {"password_reset_url": page}}
        assert operator.patch(f"/uflow/admin/tenants/{tenant.id}", set_page).status_code == 200
        person = tenant.register()
        Api().post("/uflow/auth/enduser/password/forgot", {"email": person.email, "tenant_id": str(tenant.id)})
        Api().post("/uflow/auth/admin/password/forgot", {"email": tenant.admin.email})
        assert page in mails_to(person.email, "set a new password")[-1].body
        told = mails_to(tenant.admin.email, "set a new password")[-1].body
        assert not any(page in told for page in pages)

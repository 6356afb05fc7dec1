"""The relying party of passkeys: the tenant's own domain and pages, or the platform's."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.mfa.webauthn.passkeys import (
    ADMIN_USERS,
    ORIGIN,
    Home,
    by_factor,
    end_users_of,
    new_authenticator,
    stepped_up,
)
from tests.world import PASSWORD, Api, TestTenant

OWN = {"webauthn_rp_id": "acme.example", "webauthn_origins": ["https://login.acme.example", "https://acme.shop"]}


@pytest.fixture
def acme(new_tenant: Callable[[], TestTenant], operator: Api) -> Iterator[TestTenant]:
    """A tenant with a domain of its own, which is free again afterwards."""
    tenant = new_tenant()
    assert _set(operator, tenant, OWN).status_code == 200
    yield tenant
    gone = operator.delete(f"/uflow/admin/tenants/{tenant.id}", {"confirm": tenant.slug})
    assert gone.status_code == 200


def _set(operator: Api, tenant: TestTenant, stated: dict[str, Any]) -> Any:
    return operator.patch(f"/uflow/admin/tenants/{tenant.id}", {"settings": stated})


def test_tenant_uses_own_domain(acme: TestTenant) -> None:
    home, person = end_users_of(acme), acme.register()
    api = acme.as_user(person)
    for origin in OWN["webauthn_origins"]:
        options = home.begin_registration(api, person).json()
        assert options["rp"]["id"] == "acme.example"
        credential = new_authenticator().create(options, origin=origin)
        proof = {"current_password": PASSWORD} if origin == OWN["webauthn_origins"][0] else by_factor(api)
        assert home.finish_registration(api, person, credential, **proof).status_code == 200
        api = stepped_up(api)
    for origin in (ORIGIN, "https://acme.example", "https://login.acme.example.evil.example"):
        credential = new_authenticator().create(home.begin_registration(api, person).json(), origin=origin)
        response = home.finish_registration(api, person, credential, **by_factor(api))
        assert (response.status_code, response.json()["code"]) == (400, "passkey_rejected")
    assert home.options(person)["rpId"] == "acme.example"


def test_tenant_accepts_own_android_app(new_tenant: Any, operator: Api) -> None:
    # What Android's Credential Manager states as the origin: the digest of the certificate that the app is signed with.
    app = "android:apk-key-hash:" + "k" * 43
    own = new_tenant()
    named = {"webauthn_rp_id": "apps.example", "webauthn_origins": ["https://apps.example", app]}
    assert _set(operator, own, {**named, "webauthn_origins": [app + "="]}).status_code == 400
    assert _set(operator, own, named).status_code == 200
    home, person = end_users_of(own), own.register()
    credential = new_authenticator().create(home.begin_registration(own.as_user(person), person).json(), origin=app)
    assert home.finish_registration(own.as_user(person), person, credential).status_code == 200
    # No page: browsers are not told of it.
    related = Api().get("/.well-known/webauthn", {"tenant_id": str(own.id)})
    assert related.json() == {"origins": ["https://apps.example"]}


def test_domain_without_origins_is_its_own_origin(acme: TestTenant, operator: Api) -> None:
    _set(operator, acme, {"webauthn_origins": None})
    home, person = end_users_of(acme), acme.register()
    api = acme.as_user(person)
    credential = new_authenticator().create(home.begin_registration(api, person).json(), origin="https://acme.example")
    assert home.finish_registration(api, person, credential).status_code == 200


def test_host_header_has_no_effect(home: Home, tenant: TestTenant) -> None:
    person = tenant.register()
    api = tenant.as_user(person)
    api.client.defaults["HTTP_HOST"] = "127.0.0.1"
    assert home.begin_registration(api, person).json()["rp"]["id"] == "localhost"


def test_rp_id_cannot_change_while_passkeys_exist(acme: TestTenant, operator: Api) -> None:
    home, person = end_users_of(acme), acme.register()
    assert _set(operator, acme, {"webauthn_rp_id": "new.acme.example"}).status_code == 200
    assert _set(operator, acme, {"webauthn_rp_id": "acme.example"}).status_code == 200
    api = acme.as_user(person)
    authenticator = new_authenticator()
    authenticator.origin = "https://acme.shop"
    home.enrol(api, person, authenticator)
    for changed in ("new.acme.example", None):
        response = _set(operator, acme, {"webauthn_rp_id": changed})
        assert (response.status_code, list(response.json()["details"])) == (400, ["settings.webauthn_rp_id"])
    more = {"webauthn_rp_id": "acme.example", "webauthn_origins": [*OWN["webauthn_origins"], "https://acme.test"]}
    assert _set(operator, acme, more).status_code == 200
    assert home.finish_authentication(person, authenticator.get(home.options(person))).status_code == 200


def test_related_origins(acme: TestTenant, tenant: TestTenant) -> None:
    response = Api().get("/.well-known/webauthn", {"tenant_id": str(acme.id)})
    assert response.json() == {"origins": OWN["webauthn_origins"]}
    assert response.headers["Content-Type"] == "application/json"
    assert "max-age" in response.headers["Cache-Control"]
    assert Api().get("/.well-known/webauthn").json() == {"origins": [ORIGIN]}
    assert Api().get("/.well-known/webauthn", {"tenant_id": str(tenant.id)}).json() == {"origins": [ORIGIN]}
    unknown = Api().get("/.well-known/webauthn", {"tenant_id": "00000000-0000-4000-8000-000000000000"})
    assert unknown.status_code == 404


def test_related_origins_of_the_requested_domain(acme: TestTenant, settings: Any) -> None:
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "acme.example"]
    api = Api()
    api.client.defaults["HTTP_HOST"] = "acme.example"
    assert set(OWN["webauthn_origins"]) <= set(api.get("/.well-known/webauthn").json()["origins"])
    assert ORIGIN not in api.get("/.well-known/webauthn").json()["origins"]


@pytest.fixture
def console_elsewhere(settings: Any) -> str:
    """The console has a host of its own; gives its origin."""
    settings.CONSOLE_RP_ID, settings.CONSOLE_ORIGINS = "console.example", ["https://console.example"]
    return "https://console.example"


def test_console_uses_its_own_relying_party(console_elsewhere: str, new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    for origin, status in ((ORIGIN, 400), (console_elsewhere, 200)):
        options = ADMIN_USERS.begin_registration(own.api, own.admin).json()
        assert options["rp"]["id"] == "console.example"
        authenticator = new_authenticator()
        credential = authenticator.create(options, origin=origin)
        assert ADMIN_USERS.finish_registration(own.api, own.admin, credential).status_code == status
    options = ADMIN_USERS.options(own.admin)
    assert options["rpId"] == "console.example"
    assert ADMIN_USERS.finish_authentication(own.admin, authenticator.get(options)).status_code == 401
    response = authenticator.get(ADMIN_USERS.options(own.admin), origin=console_elsewhere)
    assert ADMIN_USERS.finish_authentication(own.admin, response).status_code == 200


def test_console_relying_party_leaves_tenants_unchanged(
    enrolled: Any, home: Home, tenant: TestTenant, console_elsewhere: str
) -> None:
    person, authenticator = enrolled
    assert home.options(person)["rpId"] == "localhost"
    foreign = authenticator.get(home.options(person), origin=console_elsewhere, rp_id="console.example")
    assert home.finish_authentication(person, foreign).status_code == 401
    assert home.finish_authentication(person, authenticator.get(home.options(person))).status_code == 200


def test_admin_passkeys_default_to_platform_relying_party(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    authenticator = ADMIN_USERS.enrol(own.api, own.admin)
    assert authenticator.rp_id == "localhost"
    response = authenticator.get(ADMIN_USERS.options(own.admin))
    assert ADMIN_USERS.finish_authentication(own.admin, response).status_code == 200


def test_related_origins_of_the_console(console_elsewhere: str, settings: Any) -> None:
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "console.example"]
    api = Api()
    api.client.defaults["HTTP_HOST"] = "console.example"
    assert api.get("/.well-known/webauthn").json() == {"origins": [console_elsewhere]}
    assert Api().get("/.well-known/webauthn").json() == {"origins": [ORIGIN]}

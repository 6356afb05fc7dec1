"""`security_profile: fapi2` of a client: the settings that it demands, sets and holds."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from identity_platform.audit.models import PlatformEvent
from tests.copies import change_client
from tests.userflow.clients.keys import key_set, new_key, public_jwk
from tests.userflow.clients.test_clients import create, path, signs_in
from tests.userflow.sessions.aged import aged
from tests.userflow.sessions.clients import make_client
from tests.world import Api, TestTenant
from userflow.accounts.models import Client

DEMANDED = {
    "token_endpoint_auth_method": "private_key_jwt",
    "require_par": True,
    "require_pkce": True,
    "require_nonce": True,
    "dpop_bound_access_tokens": True,
    "refresh_token_rotation": False,
    "id_token_signed_response_alg": "ES256",
    "access_token_signed_response_alg": "ES256",
}
CONTRARY = {
    "token_endpoint_auth_method": "client_secret_basic",
    "require_par": False,
    "require_pkce": False,
    "require_nonce": False,
    "dpop_bound_access_tokens": False,
    "refresh_token_rotation": True,
    "id_token_signed_response_alg": "RS256",
    "access_token_signed_response_alg": "RS256",
}


def profile(**fields: Any) -> dict[str, Any]:
    return {"security_profile": "fapi2", "jwks": key_set(public_jwk(new_key())), **fields}


def profiled(tenant: TestTenant, **fields: Any) -> dict[str, Any]:
    """Return a client with the profile."""
    made = create(tenant, type="confidential", **profile(**fields))
    assert made.status_code == 201, made.content
    return dict(made.json())


def demanded(client: dict[str, Any]) -> dict[str, Any]:
    return {name: client[name] for name in DEMANDED}


def problems(response: Any) -> dict[str, list[str]]:
    assert response.status_code == 400, response.content
    return dict(response.json()["details"])


# --- set -------------------------------------------------------------------------------------------------------------


def test_new_client_gets_what_the_profile_demands(tenant: TestTenant) -> None:
    client = profiled(tenant)
    assert (client["security_profile"], demanded(client)) == ("fapi2", DEMANDED)
    assert "client_secret" not in client
    assert tenant.api.get(path(tenant, client["id"])).json() == client


def test_client_has_no_profile_by_default(tenant: TestTenant) -> None:
    for made in (create(tenant), create(tenant, security_profile=None)):
        assert (made.status_code, made.json()["security_profile"]) == (201, None)


def test_existing_client_gets_what_the_profile_demands(tenant: TestTenant) -> None:
    client = make_client(tenant, **{**CONTRARY, "refresh_token_rotation": True})
    own = path(tenant, client["id"])
    changed = tenant.api.patch(own, profile())
    assert changed.status_code == 200, changed.content
    assert demanded(changed.json()) == DEMANDED
    assert not signs_in(client, client["client_secret"])
    event = PlatformEvent.objects.get(target_id=client["id"], action="client.updated")
    assert event.details["before"].items() >= {**CONTRARY, "security_profile": ""}.items()
    assert event.details["after"].items() >= {**DEMANDED, "security_profile": "fapi2"}.items()


def test_values_that_agree_and_null_are_taken(tenant: TestTenant) -> None:
    assert demanded(profiled(tenant, **DEMANDED)) == DEMANDED
    null = {"token_endpoint_auth_method": None, "refresh_token_rotation": None}
    client = profiled(tenant, **null)
    assert demanded(client) == DEMANDED
    assert demanded(tenant.api.patch(path(tenant, client["id"]), null).json()) == DEMANDED


def test_other_fields_stay_free(tenant: TestTenant) -> None:
    free = {
        "first_party": True,
        "redirect_uris": ["https://app.example/back", "http://localhost/back", "http://127.0.0.1:8080/back"],
        "access_token_seconds": 120,
        "grant_types": ["authorization_code"],
    }
    client = profiled(tenant, **free)
    assert {name: client[name] for name in free} == free


# --- missing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", CONTRARY)
def test_contrary_value_is_an_error_that_says_what_to_send(tenant: TestTenant, field: str) -> None:
    contrary = {field: CONTRARY[field]}
    for response in (
        create(tenant, type="confidential", **profile(**contrary)),
        tenant.api.patch(path(tenant, make_client(tenant)["id"]), profile(**contrary)),
        tenant.api.patch(path(tenant, profiled(tenant)["id"]), contrary),
    ):
        (says,) = problems(response)[field]
        wanted = DEMANDED[field]
        assert f"Send {str(wanted).lower() if isinstance(wanted, bool) else wanted}" in says
        assert list(problems(response)) == [field]


def test_every_contrary_value_is_listed(tenant: TestTenant) -> None:
    response = create(tenant, type="confidential", **profile(**CONTRARY, redirect_uris=["com.example.app:/back"]))
    assert problems(response).keys() == {*CONTRARY, "redirect_uris[0]"}
    assert not Client.objects.filter(tenant_id=tenant.id, security_profile="fapi2", require_par=False).exists()


def test_public_client_cannot_have_the_profile(tenant: TestTenant) -> None:
    for response in (
        create(tenant, **profile()),
        create(tenant, type="public", **profile()),
        tenant.api.patch(path(tenant, create(tenant).json()["id"]), profile()),
    ):
        assert problems(response)["type"] == ["fapi2 is for confidential clients only. Create one of that type."]


def test_profile_needs_keys(tenant: TestTenant) -> None:
    needs = {"token_endpoint_auth_method": ["private_key_jwt needs the client's public keys: jwks or jwks_uri."]}
    assert problems(create(tenant, type="confidential", security_profile="fapi2")) == needs
    client = profiled(tenant)
    assert problems(tenant.api.patch(path(tenant, client["id"]), {"jwks": None})) == needs
    at_address = {"jwks": None, "jwks_uri": "https://app.example/jwks"}
    assert tenant.api.patch(path(tenant, client["id"]), at_address).status_code == 200


@pytest.mark.parametrize("uri", ["com.example.app:/back", "http://app.example/back", "http://192.0.2.1/back"])
def test_redirect_uri_without_encryption_is_rejected(tenant: TestTenant, uri: str) -> None:
    assert "redirect_uris[1]" in problems(
        create(tenant, type="confidential", **profile(redirect_uris=["https://app.example/back", uri]))
    )
    # Also one from before, which the client may keep without the profile.
    client = make_client(tenant)
    change_client(client["id"], redirect_uris=[uri])
    assert list(problems(tenant.api.patch(path(tenant, client["id"]), profile()))) == ["redirect_uris[0]"]


@pytest.mark.parametrize(
    ("make", "fields", "allowed"),
    [
        (lambda: rsa.generate_private_key(65537, 2048), {}, True),
        (lambda: rsa.generate_private_key(65537, 2048), {"alg": "PS256"}, True),
        (lambda: rsa.generate_private_key(65537, 2048), {"alg": "RS256"}, False),
        (ed25519.Ed25519PrivateKey.generate, {}, True),
        (lambda: new_key(ec.SECP384R1()), {}, False),
    ],
    ids=["RSA", "PS256", "RS256", "Ed25519", "P-384"],
)
def test_registered_keys_sign_by_allowed_algorithms(
    tenant: TestTenant, make: Any, fields: dict[str, str], allowed: bool
) -> None:
    keys = key_set(public_jwk(new_key(), kid="a"), public_jwk(make(), kid="b", **fields))
    response = create(tenant, type="confidential", **profile(jwks=keys))
    if allowed:
        assert response.status_code == 201, response.content
    else:
        assert problems(response)["jwks"] == ["keys[1]: fapi2 allows keys for PS256, ES256, EdDSA only."]


@pytest.mark.parametrize("value", ["fapi1", "", "none", True, 2])
def test_unknown_profile_is_rejected(tenant: TestTenant, value: object) -> None:
    assert list(problems(create(tenant, type="confidential", security_profile=value))) == ["security_profile"]


# --- held and taken away ---------------------------------------------------------------------------------------------


def test_other_change_records_only_itself(tenant: TestTenant) -> None:
    client = profiled(tenant)
    changed = tenant.api.patch(path(tenant, client["id"]), {"name": "Renamed"}).json()
    assert changed == {**client, "name": "Renamed", "updated_at": changed["updated_at"]}
    event = PlatformEvent.objects.get(target_id=client["id"], action="client.updated")
    assert event.details["changed"] == ["name"]


def test_taking_the_profile_away_requires_recent_authentication(tenant: TestTenant) -> None:
    client = profiled(tenant)
    own = path(tenant, client["id"])
    rejected = Api(token=aged(str(tenant.api.token), 16)).patch(own, {"security_profile": None})
    assert (rejected.status_code, rejected.json()["code"]) == (401, "insufficient_user_authentication")
    changed = tenant.api.patch(own, {"security_profile": None}).json()
    # Its settings stay until they are changed.
    assert (changed["security_profile"], demanded(changed)) == (None, DEMANDED)
    assert tenant.api.patch(own, {"require_par": False}).json()["require_par"] is False


def test_profile_is_taken_away_with_its_settings(tenant: TestTenant) -> None:
    client = profiled(tenant)
    changes = {"security_profile": None, "require_par": False, "id_token_signed_response_alg": "RS256"}
    changed = tenant.api.patch(path(tenant, client["id"]), changes)
    assert changed.status_code == 200, changed.content
    assert {name: changed.json()[name] for name in changes} == changes

"""The OpenID metadata of clients: stored and returned, the rules of each field and those between fields."""

from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from django.conf import settings

from identity_platform.audit.models import PlatformEvent
from tests.userflow.clients.keys import key_set, new_key, public_jwk
from tests.userflow.clients.test_clients import create, path, signs_in
from tests.userflow.sessions.aged import aged
from tests.userflow.sessions.clients import make_client, own_token
from tests.world import Api, TestTenant
from userflow.accounts.models import Client

DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"


def full(**members: Any) -> dict[str, Any]:
    return {
        "post_logout_redirect_uris": ["https://app.example/bye"],
        "grant_types": ["authorization_code", DEVICE_CODE],
        "token_endpoint_auth_method": "private_key_jwt",
        "jwks": key_set(public_jwk(new_key(), kid="a")),
        "jwks_uri": None,
        "id_token_signed_response_alg": "ES256",
        "access_token_signed_response_alg": "RS256",
        "audiences": ["https://api.example/orders", "urn:example:stock", "identity-api"],
        "allowed_origins": ["https://app.example", "http://localhost:3000", "http://[::1]:3000"],
        "require_par": True,
        "require_pkce": False,
        "dpop_bound_access_tokens": True,
        "first_party": True,
        "backchannel_logout_uri": "https://app.example/logout",
        "access_token_seconds": 120,
        "default_max_age": 0,
        "logo_uri": "https://app.example/logo.png",
        "client_uri": "https://app.example/",
        "policy_uri": "https://app.example/privacy",
        "tos_uri": "https://app.example/terms",
        **members,
    }


def test_metadata_is_stored_and_listed(tenant: TestTenant) -> None:
    stated = full()
    made = create(tenant, type="confidential", **stated)
    assert made.status_code == 201, made.content
    assert {name: made.json()[name] for name in stated} == stated
    assert "client_secret" not in made.json()
    read = tenant.api.get(path(tenant, made.json()["id"])).json()
    assert read == made.json()
    assert read in tenant.api.get(path(tenant)).json()["clients"]


def test_defaults_of_public_client(tenant: TestTenant) -> None:
    made = create(tenant).json()
    assert (made["grant_types"], made["token_endpoint_auth_method"]) == (
        ["authorization_code", "refresh_token"],
        "none",
    )
    assert (made["id_token_signed_response_alg"], made["first_party"], made["jwks"]) == ("RS256", False, None)
    assert {made[name] for name in ("jwks_uri", "logo_uri", "access_token_seconds", "default_max_age")} == {None}


@pytest.mark.parametrize("scopes", [[], ["services:read"]])
def test_default_grant_types_of_confidential_client(tenant: TestTenant, scopes: list[str]) -> None:
    made = create(tenant, type="confidential", scopes=scopes).json()
    own = ["client_credentials"] if scopes else []
    assert made["grant_types"] == ["authorization_code", "refresh_token", *own]
    assert made["token_endpoint_auth_method"] is None


def test_default_client_is_first_party(tenant: TestTenant) -> None:
    assert tenant.api.get(path(tenant, tenant.client_id)).json()["first_party"] is True


@pytest.mark.parametrize("method", ["put", "patch"])
def test_update_changes_only_stated_metadata(tenant: TestTenant, method: str) -> None:
    made = create(tenant, type="confidential", **full()).json()
    changes = {"audiences": [], "logo_uri": None, "grant_types": [], "access_token_seconds": None}
    changed = tenant.api.call(method, path(tenant, made["id"]), changes)
    assert changed.status_code == 200, changed.content
    default = {"grant_types": ["authorization_code", "refresh_token"], "updated_at": changed.json()["updated_at"]}
    assert changed.json() == {**made, **changes, **default}


def test_repeated_entries_are_stored_once(tenant: TestTenant) -> None:
    made = create(tenant, audiences=["urn:a:b", "urn:a:b"], allowed_origins=["https://a.example"] * 2).json()
    assert (made["audiences"], made["allowed_origins"]) == (["urn:a:b"], ["https://a.example"])


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("post_logout_redirect_uris", ["http://app.example/"], "post_logout_redirect_uris[0]"),
        ("grant_types", ["password"], "grant_types"),
        ("grant_types", ["client_credentials"], "grant_types"),
        ("token_endpoint_auth_method", "client_secret_jwt", "token_endpoint_auth_method"),
        ("token_endpoint_auth_method", "client_secret_basic", "token_endpoint_auth_method"),
        ("token_endpoint_auth_method", "private_key_jwt", "token_endpoint_auth_method"),
        ("jwks", [], "jwks"),
        ("jwks", {"keys": "a"}, "jwks"),
        ("jwks", {"keys": []}, "jwks"),
        ("jwks_uri", "ftp://app.example/jwks", "jwks_uri"),
        ("jwks_uri", "https://10.0.0.1/jwks", "jwks_uri"),
        ("jwks_uri", "https://169.254.169.254/latest", "jwks_uri"),
        ("jwks_uri", "https://user@app.example/jwks", "jwks_uri"),
        ("jwks_uri", "https://app.example:99999/jwks", "jwks_uri"),
        ("id_token_signed_response_alg", "none", "id_token_signed_response_alg"),
        ("id_token_signed_response_alg", "HS256", "id_token_signed_response_alg"),
        ("audiences", ["orders"], "audiences[0]"),
        ("audiences", ["https://api.example/#x"], "audiences[0]"),
        ("allowed_origins", ["*"], "allowed_origins[0]"),
        ("allowed_origins", ["null"], "allowed_origins[0]"),
        ("allowed_origins", ["https://*.example"], "allowed_origins[0]"),
        ("allowed_origins", ["https://app.example/"], "allowed_origins[0]"),
        ("allowed_origins", ["https://APP.example"], "allowed_origins[0]"),
        ("allowed_origins", ["https://app.example:443"], "allowed_origins[0]"),
        ("allowed_origins", ["http://app.example"], "allowed_origins[0]"),
        ("allowed_origins", ["https://app.example:70000"], "allowed_origins[0]"),
        ("backchannel_logout_uri", "https://app.example/#x", "backchannel_logout_uri"),
        ("backchannel_logout_uri", "https://192.168.1.1/", "backchannel_logout_uri"),
        ("access_token_seconds", 59, "access_token_seconds"),
        ("access_token_seconds", settings.ACCESS_TOKEN_SECONDS + 1, "access_token_seconds"),
        ("default_max_age", -1, "default_max_age"),
        ("logo_uri", "http://localhost/logo.png", "logo_uri"),
        ("tos_uri", "javascript:alert(1)", "tos_uri"),
        ("policy_uri", "", "policy_uri"),
        ("require_par", "yes", "require_par"),
        ("require_pkce", False, "require_pkce"),
    ],
)
def test_invalid_metadata_names_the_field(tenant: TestTenant, field: str, value: Any, named: str) -> None:
    response = create(tenant, **{field: value})
    assert (response.status_code, [name.partition(".")[0] for name in response.json()["details"]]) == (400, [named])


def test_confidential_client_cannot_have_method_none(tenant: TestTenant) -> None:
    response = create(tenant, type="confidential", token_endpoint_auth_method="none")
    assert (response.status_code, list(response.json()["details"])) == (400, ["token_endpoint_auth_method"])


def test_keys_come_from_one_place(tenant: TestTenant) -> None:
    both = full(jwks_uri="https://app.example/jwks")
    assert list(create(tenant, type="confidential", **both).json()["details"]) == ["jwks_uri"]


def _rsa(bits: int) -> dict[str, Any]:
    return public_jwk(rsa.generate_private_key(65537, bits))


@pytest.mark.parametrize(
    ("keys", "accepted"),
    [
        (lambda: [public_jwk(new_key())], True),
        (lambda: [public_jwk(new_key(ec.SECP384R1()))], True),
        (lambda: [public_jwk(ed25519.Ed25519PrivateKey.generate())], True),
        (lambda: [_rsa(2048)], True),
        (lambda: [public_jwk(new_key(), kid=str(n)) for n in range(10)], True),
        (lambda: [public_jwk(new_key(), kid="a"), {**_rsa(2048), "use": "enc"}], True),
        (lambda: [{**_rsa(2048), "use": "enc"}], False),
        (lambda: [public_jwk(new_key(), kid=str(n)) for n in range(11)], False),
        (lambda: [public_jwk(new_key()), public_jwk(new_key())], False),
        (lambda: [public_jwk(new_key(), kid="")], False),
        (lambda: [public_jwk(new_key(), alg="none")], False),
        (lambda: [public_jwk(new_key(), alg="HS256")], False),
        (lambda: [public_jwk(new_key(ec.SECP256K1()))], False),
        (lambda: [public_jwk(new_key(), x="AAAA")], False),
        (lambda: [public_jwk(new_key(), d="AAAA")], False),
        (lambda: [{"kty": "oct", "k": "c2VjcmV0"}], False),
        (lambda: [_rsa(1024)], False),
        (lambda: [{**_rsa(2048), "e": "A" * 80 + "AQ"}], False),
        (lambda: [{"kty": ["EC"], "crv": {}}], False),
        (lambda: ["key"], False),
    ],
)
def test_key_set_takes_public_signing_keys_only(tenant: TestTenant, keys: Any, accepted: bool) -> None:
    response = create(tenant, type="confidential", **full(jwks=key_set(*keys())))
    assert response.status_code == (201 if accepted else 400), response.content
    assert accepted or list(response.json()["details"]) == ["jwks"]


def test_change_to_a_key_ends_the_secrets(tenant: TestTenant) -> None:
    client = make_client(tenant)
    tenant.api.post(path(tenant, client["id"], "secret"))
    own = path(tenant, client["id"])
    to_key = {"token_endpoint_auth_method": "private_key_jwt", "jwks": key_set(public_jwk(new_key()))}
    assert tenant.api.patch(own, to_key).status_code == 200
    assert not signs_in(client, client["client_secret"])
    assert tenant.api.post(path(tenant, client["id"], "secret")).status_code == 400
    assert tenant.api.patch(own, {"token_endpoint_auth_method": "client_secret_basic"}).status_code == 200
    stored = Client.objects.get(pk=client["id"])
    assert (stored.secret_digest, stored.previous_secret_digest) == (None, None)
    assert not signs_in(client, client["client_secret"])
    assert signs_in(client, tenant.api.post(path(tenant, client["id"], "secret")).json()["client_secret"])


def test_new_key_requires_recent_authentication(tenant: TestTenant) -> None:
    client = create(tenant, type="confidential", **full()).json()
    stale = Api(token=aged(str(tenant.api.token), 16))
    for changes in ({"jwks": key_set(public_jwk(new_key()))}, {"token_endpoint_auth_method": None}):
        response = stale.patch(path(tenant, client["id"]), changes)
        assert (response.status_code, response.json()["code"]) == (401, "insufficient_user_authentication")
    assert stale.patch(path(tenant, client["id"]), {"jwks": client["jwks"], "logo_uri": None}).status_code == 200


REACH: list[dict[str, Any]] = [
    {"first_party": True},
    {"redirect_uris": ["https://app.example/", "https://evil.example/"]},
    {"audiences": ["urn:a:b", "identity-api"]},
    {"grant_types": ["authorization_code", DEVICE_CODE]},
    {"allowed_origins": ["https://app.example", "https://evil.example"]},
    {"require_par": False},
    {"dpop_bound_access_tokens": False},
]


@pytest.mark.parametrize("changes", REACH, ids=lambda changes: next(iter(changes)))
def test_reach_requires_recent_authentication(tenant: TestTenant, changes: dict[str, Any]) -> None:
    client = create(
        tenant,
        redirect_uris=["https://app.example/"],
        audiences=["urn:a:b"],
        allowed_origins=["https://app.example"],
        require_par=True,
        dpop_bound_access_tokens=True,
    ).json()
    stale = Api(token=aged(str(tenant.api.token), 16))
    for method in ("put", "patch"):
        response = stale.call(method, path(tenant, client["id"]), changes)
        assert (response.status_code, response.json()["code"]) == (401, "insufficient_user_authentication")
    fewer = {
        "redirect_uris": [],
        "audiences": ["urn:a:b"],
        "first_party": False,
        "allowed_origins": [],
        "require_par": True,
        "grant_types": ["refresh_token"],
    }
    assert stale.patch(path(tenant, client["id"]), fewer).status_code == 200
    assert tenant.api.patch(path(tenant, client["id"]), changes).status_code == 200


@pytest.mark.parametrize("fields", [{"first_party": True}, {"audiences": ["identity-api"]}], ids=str)
def test_new_client_with_reach_requires_proof(tenant: TestTenant, fields: dict[str, Any]) -> None:
    body = {"name": "Shop", "type": "public", **fields}
    response = Api(token=aged(str(tenant.api.token), 16)).post(path(tenant), body)
    assert (response.status_code, response.json()["code"]) == (401, "insufficient_user_authentication")


def test_only_an_admin_makes_a_client_first_party(tenant: TestTenant) -> None:
    by_scope = Api(token=own_token(make_client(tenant, scopes=["clients:write"])))
    client = create(tenant).json()
    for response in (
        by_scope.patch(path(tenant, client["id"]), {"first_party": True}),
        by_scope.post(path(tenant), {"name": "Shop", "type": "public", "first_party": True}),
    ):
        assert (response.status_code, response.json()["error"]) == (403, "Forbidden")
    assert not Client.objects.get(pk=client["id"]).first_party
    assert tenant.api.patch(path(tenant, client["id"]), {"first_party": True}).status_code == 200
    kept = by_scope.patch(path(tenant, client["id"]), {"first_party": True, "logo_uri": None})
    assert kept.status_code == 200


def test_client_widens_no_client_whose_scopes_it_lacks(tenant: TestTenant) -> None:
    strong = make_client(tenant, scopes=["services:read", "services:write"])
    weak = Api(token=own_token(make_client(tenant, scopes=["clients:write"])))
    for changes in (
        full(),
        {"redirect_uris": ["https://evil.example/"]},
        {"allowed_origins": ["https://evil.example"]},
    ):
        assert weak.patch(path(tenant, strong["id"]), changes).status_code == 403
    changes = {"audiences": ["identity-api"]}
    assert weak.patch(path(tenant, create(tenant).json()["id"]), changes).status_code == 200


def test_metadata_of_another_tenants_client_is_404(tenant: TestTenant, other_tenant: TestTenant) -> None:
    client = create(tenant, type="confidential", **full()).json()
    foreign = other_tenant.api.patch(path(other_tenant, client["id"]), {"first_party": False})
    unknown = other_tenant.api.patch(path(other_tenant, uuid4()), {"first_party": False})
    assert (foreign.status_code, foreign.content) == (404, unknown.content)
    assert tenant.api.get(path(tenant, client["id"])).json() == client


def test_changed_metadata_is_audited_with_old_and_new_values(tenant: TestTenant) -> None:
    client = create(tenant).json()
    tenant.api.patch(path(tenant, client["id"]), {"first_party": True, "allowed_origins": ["https://app.example"]})
    event = PlatformEvent.objects.get(target_id=client["id"], action="client.updated")
    assert event.details == {
        "changed": ["allowed_origins", "first_party"],
        "before": {"allowed_origins": [], "first_party": False},
        "after": {"allowed_origins": ["https://app.example"], "first_party": True},
    }
    assert event.actor_id == str(tenant.admin.id)

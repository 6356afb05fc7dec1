"""Claims from fields of end users: which become claims, where, and for whom."""

from collections.abc import Callable
from typing import Any

import jwt
import pytest

from tests.copies import change_tenant
from tests.openid.relying_party import Application, register_application
from tests.world import Api, TestTenant, User, capture_statements

SETTINGS = "/uflow/admin/tenants/{}/settings"
METADATA = {
    "department": "Books",
    "https://acme.example/level": 7,
    "secret": "kept",
    "sub": "x",
    "email_verified": True,
}


# What users write about themselves under the same keys.
FORGED = {"department": "Board", "https://acme.example/level": 1, "nowhere": "here", "theme": "dark"}


def sets(tenant: TestTenant, names: list[str] | None, **more: Any) -> None:
    changes = {"app_metadata_claims": names, **more}
    response = tenant.api.patch(SETTINGS.format(tenant.id), {"settings": changes})
    assert response.status_code == 200, response.content


def application_of(tenant: TestTenant, **fields: Any) -> Application:
    app = Application(tenant, register_application(tenant, first_party=True, **fields))
    app.sign_in(with_metadata(tenant))
    return app


def with_metadata(tenant: TestTenant) -> User:
    """Return a user with app metadata, who has written other values of the same keys."""
    person = tenant.register()
    path = f"/uflow/user/enduser/{tenant.id}/{person.id}"
    body = {"app_metadata": METADATA, "external_id": f"crm-{person.id}"}
    assert tenant.api.put(path, body).status_code == 200
    assert tenant.as_user(person).put(path, {"metadata": FORGED, "app_metadata": FORGED}).status_code == 200
    return person


def identity(tokens: dict[str, Any]) -> dict[str, Any]:
    return dict(jwt.decode(tokens["id_token"], options={"verify_signature": False}))


def userinfo(app: Application, tokens: dict[str, Any]) -> dict[str, Any]:
    return dict(Api(token=tokens["access_token"]).get(f"{app.issuer}/userinfo").json())


@pytest.fixture
def chosen(new_tenant: Callable[[], TestTenant]) -> TestTenant:
    """A tenant whose applications get two keys of the app metadata, and one that only users write."""
    own = new_tenant()
    sets(own, ["department", "https://acme.example/level", "nowhere"])
    return own


def test_profile_scope_returns_chosen_metadata(chosen: TestTenant) -> None:
    app = application_of(chosen)
    tokens = app.tokens(scope="openid profile")
    for claims in (identity(tokens), userinfo(app, tokens)):
        assert (claims["department"], claims["https://acme.example/level"]) == ("Books", 7)
        assert not {"secret", "nowhere", "email_verified"} & set(claims)
        assert claims["sub"] != "x"
    assert "department" not in userinfo(app, app.tokens(scope="openid email"))


def test_metadata_is_returned_by_name(chosen: TestTenant) -> None:
    app = application_of(chosen)
    asked = '{"id_token": {"department": null, "secret": null}, "userinfo": {"https://acme.example/level": null}}'
    tokens = app.tokens(claims=asked)
    assert identity(tokens)["department"] == "Books"
    assert "secret" not in identity(tokens)
    found = userinfo(app, tokens)
    assert found == {"sub": found["sub"], "https://acme.example/level": 7}


def test_metadata_waits_for_the_setting(chosen: TestTenant, other_tenant: TestTenant) -> None:
    elsewhere = application_of(other_tenant)
    assert "department" not in identity(elsewhere.tokens(scope="openid profile"))
    app = application_of(chosen)
    tokens = app.tokens(scope="openid profile")
    sets(chosen, None)
    assert "department" not in userinfo(app, tokens)
    assert "department" not in identity(app.tokens(scope="openid profile"))


def test_metadata_claims_are_in_the_discovery_document(chosen: TestTenant, other_tenant: TestTenant) -> None:
    documents = [
        Api().get(f"/t/{tenant.slug}/.well-known/openid-configuration").json() for tenant in (chosen, other_tenant)
    ]
    assert ["department" in document["claims_supported"] for document in documents] == [True, False]


def test_metadata_claims_cost_no_statement(chosen: TestTenant, other_tenant: TestTenant) -> None:
    counts = []
    for tenant in (chosen, other_tenant):
        app = application_of(tenant)
        token = app.tokens(scope="openid profile")["access_token"]
        with capture_statements() as statements:
            assert Api(token=token).get(f"{app.issuer}/userinfo").status_code == 200
        counts.append(statements.counts)
    assert counts[0] == counts[1] == (0, 1)


def test_metadata_of_users_is_returned_where_it_is_named(chosen: TestTenant) -> None:
    sets(chosen, ["department"], metadata_claims=["theme", "nowhere"])
    app = application_of(chosen)
    tokens = app.tokens(scope="openid profile")
    for claims in (identity(tokens), userinfo(app, tokens)):
        assert (claims["department"], claims["theme"], claims["nowhere"]) == ("Books", "dark", "here")
        assert "https://acme.example/level" not in claims


def test_key_moves_from_metadata_to_app_metadata(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    sets(own, None, metadata_claims=["department"])
    app = application_of(own)
    assert identity(app.tokens(scope="openid profile"))["department"] == "Board"
    both = {"settings": {"app_metadata_claims": ["department"]}}
    rejected = own.api.patch(SETTINGS.format(own.id), both)
    assert (rejected.status_code, list(rejected.json()["details"])) == (400, ["settings.metadata_claims"])
    open_tokens = app.tokens(scope="openid profile")
    sets(own, ["department"], metadata_claims=None)
    assert userinfo(app, open_tokens)["department"] == "Books"
    assert identity(app.tokens(scope="openid profile"))["department"] == "Books"


def test_external_id_is_a_claim_where_it_is_switched_on(chosen: TestTenant, other_tenant: TestTenant) -> None:
    elsewhere = application_of(other_tenant)
    by_name = '{"id_token": {"external_id": null}}'
    assert "external_id" not in identity(elsewhere.tokens(scope="openid profile", claims=by_name))
    sets(chosen, ["department"], external_id_claim=True)
    app = application_of(chosen)
    tokens = app.tokens(scope="openid profile")
    for claims in (identity(tokens), userinfo(app, tokens)):
        assert claims["external_id"] == f"crm-{claims['sub']}"
    assert "external_id" not in userinfo(app, app.tokens(scope="openid email"))
    assert identity(app.tokens(claims=by_name))["external_id"].startswith("crm-")
    document = Api().get(f"/t/{chosen.slug}/.well-known/openid-configuration").json()
    assert "external_id" in document["claims_supported"]
    other = Api().get(f"/t/{other_tenant.slug}/.well-known/openid-configuration").json()
    assert "external_id" not in other["claims_supported"]


def test_stored_names_that_are_reserved_since_are_no_claims(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    change_tenant(own.id, settings={"metadata_claims": ["upn", "entitlements", "given_name", "theme"]})
    app = Application(own, register_application(own, first_party=True))
    person = own.register()
    written = {"metadata": {"upn": "boss", "entitlements": ["all"], "given_name": "Ann", "theme": "dark"}}
    assert own.as_user(person).put("/authmgr/profile", written).status_code == 200
    app.sign_in(person)
    claims = identity(app.tokens(scope="openid profile"))
    assert not {"upn", "entitlements"} & claims.keys()
    # Without a decision of the tenant a harmless name of an earlier setting stays.
    assert (claims["given_name"], claims["theme"]) == ("Ann", "dark")

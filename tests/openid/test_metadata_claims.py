"""Claims from end users' metadata: which become claims, where, and for whom."""

from collections.abc import Callable
from typing import Any

import jwt
import pytest

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


def sets(tenant: TestTenant, names: list[str] | None) -> None:
    response = tenant.api.patch(SETTINGS.format(tenant.id), {"settings": {"metadata_claims": names}})
    assert response.status_code == 200, response.content


def application_of(tenant: TestTenant, **fields: Any) -> Application:
    app = Application(tenant, register_application(tenant, first_party=True, **fields))
    app.sign_in(with_metadata(tenant))
    return app


def with_metadata(tenant: TestTenant) -> User:
    person = tenant.register()
    path = f"/uflow/user/enduser/{tenant.id}/{person.id}"
    assert tenant.api.put(path, {"metadata": METADATA}).status_code == 200
    return person


def identity(tokens: dict[str, Any]) -> dict[str, Any]:
    return dict(jwt.decode(tokens["id_token"], options={"verify_signature": False}))


def userinfo(app: Application, tokens: dict[str, Any]) -> dict[str, Any]:
    return dict(Api(token=tokens["access_token"]).get(f"{app.issuer}/userinfo").json())


@pytest.fixture
def chosen(new_tenant: Callable[[], TestTenant]) -> TestTenant:
    """A tenant whose applications get two keys of the metadata, one of which no user has."""
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
    assert counts[0] == counts[1] == (1, 1)

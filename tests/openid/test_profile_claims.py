"""Standard claims of the scope `profile` that come from the users' metadata by a mapping of the tenant."""

from collections.abc import Callable
from typing import Any

import pytest

from openid.profile_values import standard_value
from tests.openid.relying_party import Application, register_application
from tests.openid.test_metadata_claims import SETTINGS, identity, userinfo
from tests.world import Api, TestTenant, capture_statements

MAPPING = [
    "given_name=app_metadata.first name",
    "family_name=metadata.last_name",
    "nickname=metadata.nick",
    "picture=metadata.avatar",
    "zoneinfo=metadata.zone",
    "preferred_username=app_metadata.login",
]
METADATA = {
    "last_name": "Lovelace",
    "nick": "Countess",
    "avatar": "https://img.example.com/ada.png",
    "zone": "Europe/London",
}
APP_METADATA = {"first name": "Ada", "login": "ada"}
EXPECTED = {
    "given_name": "Ada",
    "family_name": "Lovelace",
    "nickname": "Countess",
    "picture": "https://img.example.com/ada.png",
    "zoneinfo": "Europe/London",
    "preferred_username": "ada",
}


def change(tenant: TestTenant, mapping: object, **more: object) -> Any:
    return tenant.api.patch(SETTINGS.format(tenant.id), {"settings": {"profile_claims": mapping, **more}})


def application_of(tenant: TestTenant, metadata: dict[str, object], **fields: Any) -> Application:
    user = tenant.register()
    body = {"metadata": metadata, "app_metadata": APP_METADATA}
    assert tenant.api.put(f"/uflow/user/enduser/{tenant.id}/{user.id}", body).status_code == 200
    app = Application(tenant, register_application(tenant, **{"first_party": True, **fields}))
    app.sign_in(user)
    return app


@pytest.fixture
def mapped(new_tenant: Callable[[], TestTenant]) -> TestTenant:
    own = new_tenant()
    assert change(own, MAPPING).status_code == 200
    return own


def test_mapped_claims_are_in_id_token_and_userinfo(mapped: TestTenant) -> None:
    app = application_of(mapped, dict(METADATA))
    tokens = app.tokens(scope="openid profile")
    for claims in (identity(tokens), userinfo(app, tokens)):
        assert {name: claims[name] for name in EXPECTED} == EXPECTED
    renewed = app.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"]).json()
    assert userinfo(app, renewed) == userinfo(app, tokens)
    assert not set(EXPECTED) & set(identity(app.tokens(scope="openid email")))


def test_mapped_claim_is_returned_by_name(mapped: TestTenant) -> None:
    app = application_of(mapped, dict(METADATA))
    tokens = app.tokens(claims='{"id_token": {"nickname": null}, "userinfo": {"picture": null}}')
    assert (identity(tokens)["nickname"], userinfo(app, tokens)["picture"]) == ("Countess", METADATA["avatar"])
    assert "picture" not in identity(tokens)


def test_claims_supported_names_mapped_claims(mapped: TestTenant, tenant: TestTenant) -> None:
    def supported(of: TestTenant) -> set[str]:
        return set(Api().get(f"/t/{of.slug}/.well-known/openid-configuration").json()["claims_supported"])

    assert supported(mapped) - supported(tenant) == set(EXPECTED)


def test_values_of_another_form_are_left_out(mapped: TestTenant) -> None:
    wrong = {"last_name": 7, "nick": "  ", "avatar": "javascript:alert(1)", "zone": "Mars/Olympus"}
    app = application_of(mapped, dict(wrong))
    claims = identity(app.tokens(scope="openid profile"))
    assert {name for name in EXPECTED if name in claims} == {"given_name", "preferred_username"}


def test_mapped_claims_cost_no_statement(mapped: TestTenant) -> None:
    app = application_of(mapped, dict(METADATA))
    tokens = app.tokens(scope="openid profile")
    userinfo(app, tokens)
    with capture_statements() as captured:
        userinfo(app, tokens)
    with_mapping = captured.counts
    assert change(mapped, None).status_code == 200
    userinfo(app, tokens)
    with capture_statements() as captured:
        assert "nickname" not in userinfo(app, tokens)
    assert captured.counts == with_mapping


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        (["given_name"], "given_name=metadata.first_name"),
        (["given_name=metadata"], "given_name=metadata.first_name"),
        (["given_name=metadata."], "given_name=metadata.first_name"),
        (["given_name=password.x"], "given_name=metadata.first_name"),
        (["sub=metadata.x"], "given_name=metadata.first_name"),
        (["email=app_metadata.x"], "given_name=metadata.first_name"),
        (["nickname=metadata.a\nb"], "given_name=metadata.first_name"),
        ([f"nickname=metadata.{'a' * 101}"], "given_name=metadata.first_name"),
        ([5], "given_name=metadata.first_name"),
        (["preferred_username=metadata.x"], "preferred_username must come from app_metadata"),
        (["nickname=metadata.a", "nickname=metadata.b"], "Name each claim once: nickname."),
        ({"nickname": "metadata.a"}, ""),
        ("nickname=metadata.a", ""),
    ],
)
def test_mapping_is_validated(mapping: object, says: str, tenant: TestTenant) -> None:
    response = change(tenant, mapping)
    assert (response.status_code, response.json()["code"]) == (400, "validation_failed")
    assert says in " ".join(response.json()["details"]["settings.profile_claims"])


def test_mapping_of_one_tenant_is_not_another_tenants(mapped: TestTenant, other_tenant: TestTenant) -> None:
    app = application_of(other_tenant, dict(METADATA))
    assert not set(EXPECTED) & set(identity(app.tokens(scope="openid profile")))


@pytest.mark.parametrize(
    ("claim", "value", "accepted"),
    [
        ("picture", "https://a.example/x.png?y=1", True),
        ("website", "http://a.example", True),
        ("profile", "data:text/html,x", False),
        ("picture", "https://u:p@a.example/", False),
        ("picture", "https://", False),
        ("picture", "https://[", False),
        ("picture", "https://a.example/" + "x" * 2048, False),
        ("birthdate", "1815-12-10", True),
        ("birthdate", "0000-12-10", True),
        ("birthdate", "1815", True),
        ("birthdate", "1815-13-10", False),
        ("birthdate", "１８１５", False),
        ("birthdate", "1815\n", False),
        ("zoneinfo", "Europe/Berlin", True),
        ("zoneinfo", "../etc/passwd", False),
        ("nickname", "Zoë", True),
        ("nickname", "x" * 256, False),
        ("nickname", None, False),
        ("nickname", ["Ada"], False),
        ("gender", True, False),
    ],
)
def test_form_of_standard_claims(claim: str, value: object, accepted: bool) -> None:
    assert standard_value(claim, value) == (value if accepted else None)

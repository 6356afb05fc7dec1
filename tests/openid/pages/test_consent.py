"""The consent page: what it shows of the application and of what it gets, and when it asks again."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.openid.devices import new_device
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.openid.relying_party import query_of
from tests.openid.test_metadata_claims import identity, sets, userinfo, with_metadata
from tests.world import Api, TestTenant

LEVEL = "https://acme.example/level"
NAMES = "See from your profile: department, https://acme.example/level"


@pytest.fixture
def chosen(new_tenant: Callable[[], TestTenant]) -> TestTenant:
    """A tenant whose scope profile has two keys of the metadata."""
    own = new_tenant()
    sets(own, ["department", LEVEL])
    return own


@pytest.fixture
def visitor(chosen: TestTenant) -> Visitor:
    """A browser in which a user with metadata is signed in."""
    opened = Visitor(chosen)
    opened.signs_in(with_metadata(chosen))
    return opened


def returned(visitor: Visitor) -> str:
    """Return the code that the application gets without a page."""
    return query_of(visitor.page.headers["Location"])["code"]


def test_consent_names_the_metadata_of_the_profile(visitor: Visitor) -> None:
    begin(visitor, client={}, scope="openid profile")
    assert visitor.at == "consent"
    assert NAMES in visitor.words
    assert "secret" not in visitor.words
    assert code_of(visitor.sends(allow="1"))
    visitor.opens("account/applications")
    assert NAMES in visitor.words


def test_consent_names_metadata_asked_for_by_name(visitor: Visitor) -> None:
    begin(visitor, client={}, scope="openid", claims='{"userinfo": {"department": null}}')
    assert "See from your profile: department" in visitor.words
    assert LEVEL not in visitor.words


def test_consent_without_profile_names_no_metadata(visitor: Visitor) -> None:
    begin(visitor, client={}, scope="openid email")
    assert visitor.at == "consent"
    assert "See from your profile" not in visitor.words


def test_device_consent_names_the_metadata(visitor: Visitor, chosen: TestTenant) -> None:
    device = new_device(chosen, first_party=False)
    device.starts(scope="openid profile")
    visitor.opens(f"device?user_code={device.codes['user_code']}")
    assert NAMES in visitor.words
    visitor.sends(allow="1")
    tokens = device.polls().json()
    assert identity(tokens)["department"] == "Books"
    found = Api(token=tokens["access_token"]).get(f"{device.issuer}/userinfo").json()
    assert found[LEVEL] == 7


def test_device_approved_before_more_metadata_gets_none(visitor: Visitor, chosen: TestTenant) -> None:
    device = new_device(chosen, first_party=False)
    device.starts(scope="openid profile")
    device.approved_by(visitor)
    sets(chosen, ["department", LEVEL, "secret"])
    assert device.error == "access_denied"


def test_consent_is_asked_again_for_more_metadata(visitor: Visitor, chosen: TestTenant) -> None:
    app = begin(visitor, client={}, scope="openid profile")
    visitor.sends(allow="1")
    visitor.page = app.authorize(scope="openid profile")
    assert returned(visitor)
    sets(chosen, ["department", LEVEL, "secret"])
    visitor.page = app.authorize(scope="openid profile", prompt="none")
    assert query_of(visitor.page.headers["Location"])["error"] == "consent_required"
    visitor.page = app.authorize(scope="openid email profile")
    visitor._follow()
    assert visitor.at == "consent"
    assert "secret" in visitor.words


def test_open_session_gets_no_more_metadata(visitor: Visitor, chosen: TestTenant) -> None:
    app = begin(visitor, client={}, scope="openid profile")
    tokens: dict[str, Any] = app.exchange(code_of(visitor.sends(allow="1"))).json()
    sets(chosen, ["department", LEVEL, "secret"])
    found = userinfo(app, tokens)
    assert found["department"] == "Books"
    assert "secret" not in found


def test_consent_from_before_the_setting_stays_valid(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    visitor = Visitor(own)
    visitor.signs_in(with_metadata(own))
    app = begin(visitor, client={}, scope="openid profile")
    visitor.sends(allow="1")
    sets(own, [])
    visitor.page = app.authorize(scope="openid profile")
    assert returned(visitor)
    sets(own, ["department"])
    visitor.page = app.authorize(scope="openid email")
    visitor._follow()
    assert visitor.at == "consent"  # for the address
    assert "department" not in visitor.words


def test_narrowed_token_gets_no_metadata(visitor: Visitor) -> None:
    fields = {"scope": "openid profile offline_access"}
    app = begin(visitor, client={}, **fields)
    tokens: dict[str, Any] = app.exchange(code_of(visitor.sends(allow="1"))).json()
    narrowed = app.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"], scope="openid").json()
    assert set(userinfo(app, narrowed)) == {"sub"}


def test_consent_links_to_the_application(visitor: Visitor) -> None:
    begin(visitor, client={"client_uri": "https://shop.example.com/about"}, scope="openid")
    assert visitor.at == "consent"
    link = '<a href="https://shop.example.com/about" rel="noopener noreferrer">Shop</a>'
    assert link in visitor.text


def test_consent_shows_name_without_address_as_text(visitor: Visitor) -> None:
    begin(visitor, client={}, scope="openid")
    assert "Shop will be able to:" in visitor.words
    assert "noopener" not in visitor.text

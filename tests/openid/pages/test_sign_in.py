"""Sign-in at the hosted pages over HTTP, as a browser without a script does it."""

from urllib.parse import urlsplit

import pytest

from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.openid.test_application_tokens import claims_in
from tests.world import PASSWORD, TestTenant


def test_password_leads_to_application(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    begin(visitor)
    assert (visitor.at, visitor.page.status_code) == ("signin", 200)
    assert "Shop" in visitor.words
    assert code_of(visitor.sends(email=user.email, password=user.password))
    assert visitor.session


def test_unknown_address_gets_the_same_pages(tenant: TestTenant) -> None:
    known, unknown = Visitor(tenant), Visitor(tenant)
    user = tenant.register()
    pages = []
    for visitor, email in ((known, user.email), (unknown, "not-here@example.com")):
        visitor.opens("signin")
        first = visitor.words.replace(email, "")
        visitor.sends(email=email, password="wrong password 1")
        pages.append((first, visitor.page.status_code, visitor.words.replace(email, "")))
    assert pages[0] == pages[1]
    assert pages[0][1] == 400
    assert "incorrect" in pages[0][2]


def test_sign_in_of_wrong_address_names_the_field(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    visitor.opens("signin")
    visitor.sends(email="nothing", password=PASSWORD)
    assert visitor.page.status_code == 400
    assert 'aria-invalid="true"' in visitor.text
    assert 'id="id_email_error"' in visitor.text


def test_password_page_without_address_asks_for_it(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    visitor.opens("signin/password")
    assert visitor.at == "signin"


@pytest.mark.parametrize("path", ["signin", "signin/password"])
def test_passkey_is_offered_to_everybody(tenant: TestTenant, path: str) -> None:
    visitor = Visitor(tenant)
    visitor.opens("signin")
    visitor.sends(email="not-here@example.com", password="wrong password 1")
    visitor.opens(path)
    assert "passkey" in visitor.words
    for credential in ("{}", "nothing"):
        visitor.sends(credential=credential)
        assert (visitor.at, visitor.page.status_code) == (path, 400)
    assert "passkey" in visitor.words


def test_sign_in_is_three_requests(tenant: TestTenant) -> None:
    """The authorization endpoint answers with the page, and its form with the application's response."""
    visitor, user = Visitor(tenant), tenant.register()
    app = begin(visitor)
    assert urlsplit(visitor.page.request["PATH_INFO"]).path == f"{visitor.root}/authorize"
    response = visitor.sends(follow=False, email=user.email, password=user.password)
    tokens = app.exchange(code_of(response)).json()
    assert claims_in(tokens["id_token"])["sub"] == str(user.id)


def test_account_pages_open(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    visitor.signs_in(user)
    assert visitor.at == "account"
    for path in ("account/security", "account/devices", "account/applications", "signout"):
        assert visitor.opens(path).status_code == 200, visitor.text
        assert visitor.at == path
    # A factor is enrolled with a proof.
    assert visitor.opens("enroll").status_code == 200, visitor.text
    assert visitor.at == "step-up"
    assert visitor.opens("account/data").json()["profile"]["email"] == user.email

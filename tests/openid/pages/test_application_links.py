"""Invitations and the pages of the account lead to an application."""

import re
from collections.abc import Callable

import pytest

from tests.copies import change_client
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.openid.relying_party import register_application
from tests.userflow.invitations.test_invitations import invite
from tests.userflow.mailbox import mails_to, token_in
from tests.world import PASSWORD, TestTenant, User

SHOP = "https://shop.example.com/"
START = "https://start.example.com/"


@pytest.fixture
def own(new_tenant: Callable[[], TestTenant]) -> TestTenant:
    """A tenant whose default client has an address."""
    tenant = new_tenant()
    change_client(tenant.client_id, name="Start", client_uri=START)
    return tenant


def applications_of(visitor: Visitor) -> dict[str, str]:
    """Return the links of the page to applications: text and address."""
    return {
        text: address for address, text in re.findall(r'<a [^>]*href="([^"]*)"[^>]*>(Go to [^<]*)</a>', visitor.text)
    }


def signed_in(tenant: TestTenant, user: User) -> Visitor:
    visitor = Visitor(tenant)
    visitor.signs_in(user)
    assert visitor.at == "account"
    return visitor


def test_invitation_leads_to_its_application(own: TestTenant) -> None:
    client = register_application(own, client_uri=SHOP)
    invitation = invite(own, "end_user", client_id=client["client_id"])
    visitor = Visitor(own)
    visitor.opens("invitation")
    visitor.sends(token=token_in(mails_to(invitation["email"], "invited")[-1]), name="Ina", password=PASSWORD)
    assert visitor.at == "account"
    assert "Your account is ready." in visitor.words
    button = f'<a class="button" href="{SHOP}" rel="noreferrer">Go to Shop</a>'
    assert button in visitor.text
    visitor.opens("account")
    assert button not in visitor.text
    assert applications_of(visitor) == {"Go to Shop": SHOP}


def test_account_leads_to_the_application_of_the_browser(own: TestTenant) -> None:
    visitor = signed_in(own, own.register())
    assert applications_of(visitor) == {"Go to Start": START}
    app = begin(visitor, client={"first_party": True, "client_uri": SHOP})
    assert app.exchange(code_of(visitor.page)).status_code == 200
    for path in ("account", "account/security", "account/devices", "account/applications"):
        visitor.opens(path)
        assert applications_of(visitor) == {"Go to Shop": SHOP}, path


def test_account_leads_to_no_deactivated_application(own: TestTenant) -> None:
    visitor = signed_in(own, own.register())
    app = begin(visitor, client={"first_party": True, "client_uri": SHOP})
    app.exchange(code_of(visitor.page))
    change_client(app.client["client_id"], active=False)
    visitor.opens("account")
    assert applications_of(visitor) == {"Go to Start": START}


def test_account_without_an_application_with_an_address(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    assert applications_of(signed_in(tenant, tenant.register())) == {}

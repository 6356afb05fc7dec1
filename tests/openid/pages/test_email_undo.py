"""The page that undoes a change of e-mail address: in the language of the mail, branded, and without scripts."""

import re
from collections.abc import Callable

import pytest
from django.conf import settings
from django.core import mail as django_mail
from selenium import webdriver
from selenium.webdriver.common.by import By

from tenants.entering.context import in_tenant
from tests.browsers import wait_on
from tests.openid.node_client import PACKAGES, install_packages
from tests.openid.pages.test_browser import VIOLATIONS
from tests.openid.pages.visitor import Visitor
from tests.openid.sign_in_domains import sign_in_domain
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.userflow.email.test_proofs import verify
from tests.userflow.email.test_undo import changed
from tests.userflow.mailbox import mails_to, token_in
from tests.userflow.sessions.test_oauth_libraries import place as place
from tests.userflow.tenants.test_branding import EVERYTHING, encoded, path_of, picture
from tests.world import TestTenant, User
from userflow.accounts.models import EndUser
from userflow.mail_delivery import background


@pytest.fixture
def branded(new_tenant: Callable[[], TestTenant]) -> TestTenant:
    """A tenant whose mails are in German, with a logo."""
    tenant = new_tenant()
    assert tenant.api.patch(path_of(tenant), {**EVERYTHING, "logo": encoded(picture())}).status_code == 200
    return tenant


@pytest.fixture
def person(branded: TestTenant) -> User:
    """A user whose verified address has become another one."""
    user = branded.register()
    new = f"new-{user.email}"
    for email in (user.email, new):
        if email == new:
            changed(branded, user, new)
        assert verify(token=token_in(mails_to(email)[-1])).status_code == 200
    return user


def link_to(user: User) -> tuple[str, str]:
    """Return the address of the newest mail's link without the token, and the token."""
    assert background.settle(60)
    sent = [sent for sent in django_mail.outbox if sent.to == [user.email]][-1]
    (page,) = re.findall(r"^(\S+)#token=", str(sent.body), re.MULTILINE)
    return page, token_in(sent)


def address_of(user: User, tenant: TestTenant) -> str:
    with in_tenant(tenant.id):
        return EndUser.objects.get(pk=user.id).email


def test_undo_page_restores_the_address_without_scripts(branded: TestTenant, person: User) -> None:
    page, token = link_to(person)
    assert page == f"{settings.BASE_URL}/t/{branded.slug}/email-undo?ui_locales=de"
    visitor = Visitor(branded)
    visitor.opens(page.removeprefix(settings.BASE_URL), Accept_Language="fr")
    assert '<html lang="de">' in visitor.text
    assert "E-Mail-Adresse behalten" in visitor.words
    assert "Acme Books" in visitor.words
    assert f'src="/t/{branded.slug}/logo?v=' in visitor.text
    assert address_of(person, branded) != person.email
    visitor.sends(token=token)
    assert f"{person.email} ist wieder die Adresse Ihres Kontos" in visitor.words
    assert address_of(person, branded) == person.email
    visitor.opens(page.removeprefix(settings.BASE_URL))
    visitor.sends(token=token)
    assert visitor.page.status_code == 400
    assert "oder er wurde schon verwendet" in visitor.words


def test_undo_page_takes_no_token_of_another_tenant(
    other_tenant: TestTenant, branded: TestTenant, person: User
) -> None:
    visitor = Visitor(other_tenant)
    visitor.opens("email-undo")
    visitor.sends(token=link_to(person)[1])
    assert visitor.page.status_code == 400
    assert address_of(person, branded) != person.email


def test_undo_form_of_another_browser_is_rejected(branded: TestTenant, person: User) -> None:
    visitor, other = Visitor(branded), Visitor(branded)
    visitor.opens("email-undo")
    other.opens("email-undo")
    visitor.page = other.page
    visitor.sends(token=link_to(person)[1])
    assert visitor.page.status_code == 403
    assert address_of(person, branded) != person.email


def test_undo_page_stays_when_the_tenant_has_a_domain(
    branded: TestTenant, person: User, name_server: DnsServer
) -> None:
    page, token = link_to(person)
    sign_in_domain(branded, name_server)
    visitor = Visitor(branded)
    visitor.opens(page.removeprefix(settings.BASE_URL))
    assert visitor.page.status_code == 200
    # It is at the tenant's domain.
    assert "/logo" not in visitor.text
    visitor.sends(token=token)
    assert address_of(person, branded) == person.email


@pytest.mark.needs("chromium", "chromedriver", "node")
@pytest.mark.timeout(300)
def test_undo_page_in_the_browser(place: str, branded: TestTenant, person: User, browser: webdriver.Chrome) -> None:
    install_packages()
    browser.implicitly_wait(10)
    page, token = link_to(person)
    browser.get(f"{place}{page.removeprefix(settings.BASE_URL)}#token={token}")
    assert wait_on(browser).until(lambda _: "token" not in browser.current_url)
    for expected in ("E-Mail-Adresse behalten", "wieder die Adresse Ihres Kontos"):
        assert wait_on(browser).until(lambda _, text=expected: text in browser.find_element(By.TAG_NAME, "main").text)
        browser.execute_script((PACKAGES / "axe-core" / "axe.min.js").read_text())
        assert browser.execute_async_script(VIOLATIONS) == []
        if buttons := browser.find_elements(By.XPATH, "//button[contains(., 'Adresse wiederherstellen')]"):
            buttons[0].click()
    assert address_of(person, branded) == person.email

"""The pages behind the links of mails."""

import re
import secrets
from collections.abc import Callable

import pytest
from django.conf import settings
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.browsers import wait_on
from tests.userflow.email.test_proofs import last_proof, strict_tenant
from tests.userflow.email.test_proofs import sign_in as try_to_sign_in
from tests.userflow.invitations.test_invitations import invite, new_address, token_of
from tests.userflow.mailbox import mails_to, token_in
from tests.userflow.passwords.test_reset import ask, login
from tests.userflow.sessions.test_oauth_libraries import place as place
from tests.world import PASSWORD, Api, TestTenant, sign_in_admin

NEW = "another horse 8 battery"
PAGES = ["/password/reset", "/email/verify", "/email/undo", "/invitations/accept"]


@pytest.fixture
def browser(browser: webdriver.Chrome) -> webdriver.Chrome:
    """Return a browser that waits for elements of a page that is still loading."""
    browser.implicitly_wait(10)
    return browser


def element(browser: webdriver.Chrome, name: str) -> WebElement:
    return browser.find_element(By.ID, name)


def submit(browser: webdriver.Chrome, **fields: str) -> None:
    for name, text in fields.items():
        field = element(browser, name)
        field.clear()
        field.send_keys(text)
    browser.find_element(By.TAG_NAME, "button").click()


def says(browser: webdriver.Chrome, name: str, text: str) -> bool:
    """Wait until the page shows this text as its error or result."""
    return bool(wait_on(browser).until(lambda _: text in element(browser, name).text))


@pytest.mark.parametrize("page", PAGES)
def test_page_allows_only_its_own_script(api: Api, page: str) -> None:
    response = api.get(page)
    assert (response.status_code, response.headers["Cache-Control"]) == (200, "no-store")
    policy = response.headers["Content-Security-Policy"]
    nonce = re.search(r"script-src 'nonce-([A-Za-z0-9_-]+)'", policy)
    assert nonce
    assert response.content.count(f'nonce="{nonce[1]}"'.encode()) == 2
    assert "unsafe" not in policy
    assert api.get(page).headers["Content-Security-Policy"] != policy


@pytest.mark.parametrize("page", PAGES)
def test_page_rejects_other_methods(api: Api, page: str) -> None:
    response = api.post(page, {"password": NEW})
    assert (response.status_code, response.json()["error"]) == (405, "Method Not Allowed")


@pytest.mark.parametrize("page", PAGES)
def test_page_is_accessible(api: Api, page: str) -> None:
    text = api.get(page).content.decode()
    assert '<html lang="en">' in text
    assert re.search(r"<title>[^<]+</title>", text)
    fields = set(re.findall(r'<input id="(\w+)"', text))
    assert fields == set(re.findall(r'<label for="(\w+)"', text))
    assert 'role="alert"' in text
    assert 'role="status"' in text


def test_mail_links_lead_to_the_pages() -> None:
    links = [
        settings.PASSWORD_RESET_URL,
        settings.EMAIL_VERIFICATION_URL,
        settings.EMAIL_UNDO_URL,
        settings.INVITATION_URL,
    ]
    assert links == [settings.BASE_URL + page for page in PAGES]


@pytest.mark.needs("chromium", "chromedriver")
def test_reset_page_sets_password(place: str, tenant: TestTenant, browser: webdriver.Chrome) -> None:
    person = tenant.register()
    # The page of an older link is still open in the tab, so only the fragment changes.
    browser.get(f"{place}/password/reset#realm=enduser&token=of-an-older-mail")
    browser.get(f"{place}/password/reset#realm=enduser&token={ask(tenant, person)}")
    assert wait_on(browser).until(lambda _: "token" not in browser.current_url)
    submit(browser, password=NEW, again=NEW + "x")
    assert says(browser, "problem", "The passwords do not match.")
    submit(browser, password="Password2026!", again="Password2026!")
    assert says(browser, "problem", "breaches")
    submit(browser, password=NEW, again=NEW)
    assert says(browser, "done", "Your new password is set")
    assert (login(tenant, person, PASSWORD), login(tenant, person, NEW)) == (401, 200)


@pytest.mark.needs("chromium", "chromedriver")
def test_verify_page_verifies_with_one_click(place: str, django_db_setup: None, browser: webdriver.Chrome) -> None:
    strict = strict_tenant()
    person = strict.register()
    browser.get(f"{place}/email/verify#token={token_in(last_proof(person.email))}")
    assert "token" not in browser.current_url
    # Opening the page verifies nothing: mail scanners open links too.
    assert try_to_sign_in(strict, person.email).status_code == 403
    submit(browser)
    assert says(browser, "done", f"{person.email} is verified")
    assert try_to_sign_in(strict, person.email).status_code == 200


@pytest.mark.needs("chromium", "chromedriver")
def test_invitation_page_accepts_end_user(place: str, tenant: TestTenant, browser: webdriver.Chrome) -> None:
    invitation = invite(tenant, "end_user")
    browser.get(f"{place}/invitations/accept#token={token_of(invitation)}")
    assert "token" not in browser.current_url
    assert not element(browser, "username").is_displayed()
    submit(browser, name="Ada Byron", password=NEW, again=NEW)
    assert says(browser, "done", f"sign in as {invitation['email']}")
    assert try_to_sign_in(tenant, invitation["email"], NEW).status_code == 200


@pytest.mark.needs("chromium", "chromedriver")
def test_invitation_page_accepts_admin(place: str, tenant: TestTenant, browser: webdriver.Chrome) -> None:
    name = f"u{secrets.token_hex(4)}"
    browser.get(f"{place}/invitations/accept#token={token_of(invite(tenant, 'admin', roles=['auditor']))}")
    submit(browser, username=tenant.admin.username, password=NEW, again=NEW)
    assert says(browser, "problem", "username")
    submit(browser, username=name)
    assert says(browser, "done", f"sign in as {name}")
    assert sign_in_admin(name, NEW)["access_token"]


@pytest.mark.needs("chromium", "chromedriver")
def test_page_without_token_reports_incomplete_link(place: str, browser: webdriver.Chrome) -> None:
    for page in PAGES:
        browser.get(place + page)
        assert says(browser, "problem", "Open the link from the mail again")
        assert not element(browser, "form").is_displayed()


def test_tenant_can_have_own_pages(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    own.row.settings = {
        "email_verification": "required",
        "email_verification_url": "https://shop.example/proof",
        "invitation_url": "https://shop.example/welcome",
    }
    own.row.save()
    person, guest, admin = own.register(), invite(own, "end_user", new_address()), invite(own, "admin", new_address())
    assert "https://shop.example/proof#token=" in last_proof(person.email).body
    assert "https://shop.example/welcome#token=" in mail_of(guest["email"])
    # Admin users belong to the platform, so a tenant's page never gets their tokens.
    assert f"{settings.INVITATION_URL}#token=" in mail_of(admin["email"])


def mail_of(address: str) -> str:
    return str(mails_to(address)[-1].body)

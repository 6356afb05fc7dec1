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
from tests.copies import change_tenant
from tests.userflow.email.test_proofs import last_proof
from tests.userflow.email.test_undo import link_to as undo_link_to
from tests.userflow.invitations.test_invitations import invite, new_address, token_of
from tests.userflow.mailbox import mails_to, token_in
from tests.userflow.passwords.test_reset import ADMIN_FORGOT
from tests.userflow.passwords.test_reset import token_in as reset_token_in
from tests.userflow.sessions.test_oauth_libraries import place as place
from tests.world import PASSWORD, Api, TestTenant, sign_in_admin
from userflow.accounts.models import AdminUser
from userflow.accounts.realms import ADMINS
from userflow.email.admin_proofs import start_admin_proof

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


def leads_to_console(browser: webdriver.Chrome) -> bool:
    """Whether the finished page shows the link to the console."""
    link = browser.find_element(By.CSS_SELECTOR, "#next a")
    return link.is_displayed() and str(link.get_attribute("href")).endswith("/admin/")


@pytest.mark.needs("chromium", "chromedriver")
def test_reset_page_sets_password(place: str, new_tenant: Callable[[], TestTenant], browser: webdriver.Chrome) -> None:
    admin = new_tenant().admin
    assert Api().post(ADMIN_FORGOT, {"email": admin.email}).status_code == 200
    # The page of an older link is still open in the tab, so only the fragment changes.
    browser.get(f"{place}/password/reset#token=of-an-older-mail")
    browser.get(f"{place}/password/reset#token={reset_token_in(mails_to(admin.email)[-1])}")
    assert wait_on(browser).until(lambda _: "token" not in browser.current_url)
    submit(browser, password=NEW, again=NEW + "x")
    assert says(browser, "problem", "The passwords do not match.")
    submit(browser, password="Password2026!", again="Password2026!")
    assert says(browser, "problem", "breaches")
    assert not leads_to_console(browser)
    submit(browser, password=NEW, again=NEW)
    assert says(browser, "done", "Your new password is set")
    assert leads_to_console(browser)
    assert sign_in_admin(admin.username, NEW)["access_token"]


@pytest.mark.needs("chromium", "chromedriver")
def test_verify_page_verifies_with_one_click(
    place: str, new_tenant: Callable[[], TestTenant], browser: webdriver.Chrome
) -> None:
    admin = new_tenant().admin
    row = AdminUser.objects.get(pk=admin.id)
    AdminUser.objects.filter(pk=row.pk).update(email_verified_at=None)
    with ADMINS.atomic():
        start_admin_proof(row, row.email)
    browser.get(f"{place}/email/verify#token={token_in(mails_to(row.email)[-1])}")
    assert "token" not in browser.current_url
    # Opening the page verifies nothing: mail scanners open links too.
    row.refresh_from_db()
    assert row.email_verified_at is None
    # An admin keeps sessions and factors in any case, so nothing asks for a password.
    assert not browser.find_elements(By.TAG_NAME, "input")
    submit(browser)
    assert says(browser, "done", f"{row.email} is verified")
    row.refresh_from_db()
    assert row.email_verified_at
    assert leads_to_console(browser)


@pytest.mark.needs("chromium", "chromedriver")
def test_invitation_page_accepts_admin(place: str, tenant: TestTenant, browser: webdriver.Chrome) -> None:
    name = f"u{secrets.token_hex(4)}"
    browser.get(f"{place}/invitations/accept#token={token_of(invite(tenant, 'admin', roles=['auditor']))}")
    submit(browser, username=tenant.admin.username, password=NEW, again=NEW)
    assert says(browser, "problem", "username")
    submit(browser, username=name)
    assert says(browser, "done", f"sign in as {name}")
    assert leads_to_console(browser)
    assert sign_in_admin(name, NEW)["access_token"]


@pytest.mark.needs("chromium", "chromedriver")
def test_page_without_token_reports_incomplete_link(place: str, browser: webdriver.Chrome) -> None:
    for page in PAGES:
        browser.get(place + page)
        assert says(browser, "problem", "Open the link from the mail again")
        assert not element(browser, "form").is_displayed()
        leads_on(browser)


@pytest.mark.needs("chromium", "chromedriver")
def test_page_with_an_old_link_leads_on(place: str, browser: webdriver.Chrome) -> None:
    """A typing error is corrected at the form; a link that is used or expired needs a way on."""
    browser.get(f"{place}/password/reset#token=p.{'A' * 43}")
    submit(browser, password=NEW, again=NEW + "x")
    assert says(browser, "problem", "The passwords do not match.")
    assert not element(browser, "ways").is_displayed()
    submit(browser, password=NEW, again=NEW)
    assert says(browser, "problem", "invalid")
    leads_on(browser)
    browser.get(f"{place}/email/undo#token=p.{'A' * 43}")
    submit(browser)
    assert says(browser, "problem", "invalid")
    leads_on(browser)


def leads_on(browser: webdriver.Chrome) -> None:
    """Check that the page has links to the sign-in and to a new password, and the number of a request for support."""
    links = {link.text: link.get_attribute("href") for link in browser.find_elements(By.CSS_SELECTOR, "#ways a")}
    assert [str(address).rpartition("/admin")[2] for address in links.values()] == ["/", "/forgotten/"]
    assert "" not in links
    assert re.fullmatch(r"If you ask for help, give this number: [0-9a-f]{32}", element(browser, "reference").text)


@pytest.mark.needs("chromium", "chromedriver")
def test_undo_page_leads_to_a_new_password(
    place: str, new_tenant: Callable[[], TestTenant], browser: webdriver.Chrome
) -> None:
    own = new_tenant()
    admin, change = own.admin, {"email": new_address(), "current_password": PASSWORD}
    assert own.api.put(f"/uflow/admin/users/{admin.id}", change).status_code == 200
    browser.get(f"{place}/email/undo#token={undo_link_to(admin.email)}")
    submit(browser)
    assert says(browser, "done", f"{admin.email} is the address of your account again")
    link = browser.find_element(By.CSS_SELECTOR, "#next a")
    assert (link.text, str(link.get_attribute("href")).endswith("/admin/forgotten/")) == ("Set a new password", True)


def test_tenant_can_have_own_pages(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    own.row.settings = {
        "email_verification": "required",
        "email_verification_url": "https://shop.example/proof",
        "invitation_url": "https://shop.example/welcome",
    }
    change_tenant(own.id, settings=own.row.settings)
    person, guest, admin = own.register(), invite(own, "end_user", new_address()), invite(own, "admin", new_address())
    assert "https://shop.example/proof#token=" in last_proof(person.email).body
    assert "https://shop.example/welcome#token=" in mail_of(guest["email"])
    # Admin users belong to the platform, so a tenant's page never gets their tokens.
    assert f"{settings.INVITATION_URL}#token=" in mail_of(admin["email"])


def mail_of(address: str) -> str:
    return str(mails_to(address)[-1].body)

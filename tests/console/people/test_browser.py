"""Support work inside a tenant, in a browser by keyboard; and every page fits a phone."""

from collections.abc import Callable
from urllib.parse import quote_plus

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import staleness_of

from openid.authorization.consents import grant_consent
from tenants.entering.context import in_tenant
from tests.browsers import wait_on
from tests.console.people.browsing import CHOOSER, GROUPS, PEOPLE, ROLES, SESSIONS, USERS, tenant_events
from tests.console.staff import new_operator
from tests.machine.conftest import within
from tests.mfa.people import new_user
from tests.userflow.mailbox import mails_to
from tests.userflow.sessions.test_oauth_libraries import place as place
from tests.userflow.test_pages import browser as browser
from tests.world import TestTenant
from userflow.sessions.signing import rotate_signing_keys

pytestmark = pytest.mark.needs("chromium", "chromedriver")
# Fields without an accessible name, and elements wider than the window.
NAMELESS = """
    return [...document.querySelectorAll('#main :is(input:not([type=hidden]), select, textarea, button, a[href])')]
        .filter(e => e.offsetParent !== null)
        .filter(e => !(e.labels && e.labels.length) && !e.ariaLabel && !e.placeholder && !e.textContent.trim() && !e.title)
        .map(e => e.outerHTML)
"""
WIDTH = "return document.documentElement.scrollWidth"


def sign_in(browser: webdriver.Chrome, place: str) -> None:
    staff = new_operator()
    browser.get(f"{place}/admin/login/")
    browser.find_element(By.NAME, "username").send_keys(staff.username)
    browser.find_element(By.NAME, "password").send_keys(staff.password, Keys.ENTER)
    shows(browser, staff.username)


def shows(browser: webdriver.Chrome, text: str) -> None:
    wait_on(browser).until(lambda _: text in browser.find_element(By.TAG_NAME, "body").text)


def type_into(browser: webdriver.Chrome, name: str, text: str) -> None:
    """Type and press Enter; the address of the next page contains the text."""
    browser.find_element(By.NAME, name).send_keys(text, Keys.ENTER)
    wait_on(browser).until(lambda _: f"{name}={quote_plus(text)}" in browser.current_url)


def press(browser: webdriver.Chrome, words: str) -> None:
    """Press Enter on the link or button with this text, and wait for the next page."""
    found = f"//a[normalize-space()='{words}'] | //button[normalize-space()='{words}']"
    page = browser.find_element(By.TAG_NAME, "html")

    def pressed(_: webdriver.Chrome) -> bool:
        shown = next((e for e in browser.find_elements(By.XPATH, found) if e.is_displayed()), None)
        if shown is not None:
            shown.send_keys(Keys.ENTER)
        return shown is not None

    waiting = wait_on(browser)
    waiting.until(pressed)
    waiting.until(staleness_of(page))


def test_support_finds_user_and_resets_factors(
    place: str, browser: webdriver.Chrome, new_tenant: Callable[[], TestTenant]
) -> None:
    tenant = new_tenant()
    person = new_user(tenant).enrol_totp()
    sign_in(browser, place)
    browser.get(f"{place}{USERS}")
    type_into(browser, "q", tenant.slug)
    shows(browser, "Results")
    press(browser, "Open tenant")
    shows(browser, tenant.name)
    type_into(browser, "q", person.email[:12])
    shows(browser, person.email)
    press(browser, person.email)
    shows(browser, "Authenticator app")
    press(browser, "Reset second factors")
    shows(browser, "The user receives an enrollment pass by mail")
    browser.find_element(By.NAME, "reason").send_keys("Phone lost, seen at the desk")
    press(browser, "Remove all factors")
    shows(browser, "All second factors are removed")
    assert any("removed by an administrator" in sent.body for sent in mails_to(person.email))
    assert tenant_events(tenant, "factor.reset")[0].target_id == str(person.id)
    press(browser, "Exit tenant")
    shows(browser, "Name or slug of the tenant")


def test_pages_inside_a_tenant_fit_a_phone_and_name_their_fields(
    place: str, browser: webdriver.Chrome, new_tenant: Callable[[], TestTenant]
) -> None:
    tenant = new_tenant()
    person = tenant.register(
        f"{'long' * 12}@{'long-domain.' * 6}example", name="Wolfeschlegelsteinhausenbergerdorff " * 3
    )
    tenant.sign_in(person)
    rotate_signing_keys(tenant.id)
    with in_tenant(tenant.id):
        grant_consent(user_id=person.id, client_id=tenant.client_id, scopes=["openid", "p" * 63 + ":" + "a" * 63])
    role = tenant.api.post("/authmgr/roles", {"name": "r" * 63, "permissions": ["p" * 63 + ":" + "a" * 63]}).json()
    group = tenant.api.post("/authmgr/groups", {"name": "g" * 200, "roles": [role["name"]]}).json()
    tenant.api.post(f"/authmgr/groups/{group['id']}/users", {"user_ids": [str(person.id)]})
    sign_in(browser, place)
    browser.get(f"{place}{CHOOSER}?tenant={tenant.id}")
    press(browser, "Open tenant")
    shows(browser, person.email)
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    own, groups, roles = (
        f"{PEOPLE}{person.id}/",
        f"/admin/inside/groups/{group['id']}/",
        f"/admin/inside/roles/{role['id']}/",
    )
    for path in (
        *(CHOOSER, USERS, f"{USERS}?q=unknown", GROUPS, ROLES, SESSIONS, "/admin/inside/trail/"),
        *(own, f"{own}edit/", f"{own}erase/", f"{own}groups/", f"{PEOPLE}register/"),
        *(groups, f"{groups}edit/", f"{groups}members/?q=long", roles, f"{roles}edit/"),
        *("/admin/inside/invitations/", "/admin/inside/invitations/new/"),
        *(f"{own}applications/{tenant.client_id}/disconnect/", "/admin/inside/signing-keys/"),
    ):
        browser.get(f"{place}{path}")
        assert within(10, lambda: browser.execute_script(WIDTH) <= 390), path
        assert within(10, lambda: browser.execute_script(NAMELESS) == []), (path, browser.execute_script(NAMELESS))

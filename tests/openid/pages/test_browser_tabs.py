"""Two tabs with two accounts in Chromium: each page with steps acts on the account that it shows."""

import re
import secrets
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import PASSWORD
from tests.mfa.browser.demo import totp
from tests.openid.pages.test_browser import register
from tests.openid.pages.test_browser import shop as shop
from tests.openid.pages.test_browser_journeys import NEW, Traveller
from tests.openid.pages.test_browser_journeys import traveller as traveller
from tests.openid.pages.test_browser_walk import television as television
from userflow.accounts.grant_types import DEVICE_CODE

pytestmark = [pytest.mark.needs("chromium", "chromedriver", "node"), pytest.mark.timeout(300)]


class TwoAccounts(Traveller):
    """A person with two accounts; `email` is that of the tab."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Of the accounts' authenticator apps.
        self.keys: dict[str, str] = {}


class Tabs:
    """Two tabs of one browser, each with an account of its own. What one does, the other does before it goes on."""

    def __init__(self, person: TwoAccounts) -> None:
        self.person = person
        self.emails = [f"{name}-{secrets.token_hex(3)}@example.com" for name in ("ada", "bea")]
        self.handles = [person.browser.current_window_handle]
        person.browser.switch_to.new_window("tab")
        self.handles.append(person.browser.current_window_handle)

    def show(self, number: int) -> TwoAccounts:
        """Switch to one of the tabs."""
        self.person.browser.switch_to.window(self.handles[number])
        self.person.email = self.emails[number]
        return self.person

    def both(self, act: Callable[[TwoAccounts], None]) -> None:
        for number in (0, 1):
            act(self.show(number))


def registers(person: TwoAccounts) -> None:
    person.opens(f"{person.root}/register")
    person.fills("E-mail address", person.email)
    person.fills("Password", PASSWORD + Keys.ENTER)
    person.reads("Verify your e-mail address")


def verifies(person: TwoAccounts) -> None:
    (code,) = re.findall(r"(?<![\w.-])[0-9]{6}(?![\w.-]*\w)", person.mail(f"{person.root}/verify-email#"))
    person.fills("Code from the mail", code + Keys.ENTER)
    person.reads("Your e-mail address is verified.")
    person.reads(person.email)


def enters_the_password(person: TwoAccounts) -> None:
    person.fills("Password", PASSWORD + Keys.ENTER)
    person.reads("Authenticator app")
    person.reads(person.email)


def enters_address_and_password(person: TwoAccounts) -> None:
    person.fills("E-mail address", person.email)
    person.fills("Password", PASSWORD + Keys.ENTER)


def chooses_an_app(person: TwoAccounts) -> None:
    person.browser.find_element(By.CSS_SELECTOR, "button.choice").click()
    person.presses("Cannot scan the code?")
    person.keys[person.email] = person.browser.find_element(By.TAG_NAME, "code").text.replace(" ", "")


def opens_again(person: TwoAccounts) -> None:
    """Go on after the other tab has signed in: forms of before belong to no session, and are rejected."""
    person.reads("You have signed in in another tab of this browser")
    person.presses("Open the page again")


def adds_the_app(person: TwoAccounts, *, is_late: bool) -> None:
    if is_late:
        person.fills("Six digits", "000000" + Keys.ENTER)
        opens_again(person)
        chooses_an_app(person)
    person.fills("Six digits", totp(person.keys[person.email], time.time()) + Keys.ENTER)
    person.reads("Save your backup codes")
    person.opens(f"{person.root}/account")
    person.reads(person.email)


def enters_a_code(person: TwoAccounts, *, is_late: bool) -> None:
    if is_late:
        person.fills("Code from your authenticator app", "000000" + Keys.ENTER)
        opens_again(person)
    # The code of this moment was used when the app was added.
    person.fills("Code from your authenticator app", totp(person.keys[person.email], time.time() + 30) + Keys.ENTER)
    person.is_at(f"{person.root}/account")
    person.reads(person.email)


def signs_in_again(person: TwoAccounts) -> None:
    person.opens(f"{person.root}/signin?another=1")
    person.fills("E-mail address", person.email)
    enters_the_password(person)


def asks_for_a_link(person: TwoAccounts) -> None:
    person.opens(f"{person.root}/forgot")
    person.fills("E-mail address", person.email + Keys.ENTER)
    person.reads("Check your mail")


@pytest.fixture
def strict(place: RunningPlatform, shop: dict[str, Any]) -> dict[str, Any]:
    """A tenant that requires verified addresses and a second factor."""
    tenant = place.new_tenant("Careful Books")
    admin = {"username": tenant["admin"]["username"], "password": PASSWORD}
    token = place.call("POST", "/uflow/admin/auth/login", admin)["access_token"]
    body = {"settings": {"email_verification": "required", "mfa_policy": "required"}}
    place.call("PATCH", f"/uflow/admin/tenants/{tenant['tenant_id']}/settings", body, token=token)
    return tenant


def test_tabs_of_two_accounts_stay_apart(traveller: Callable[..., Traveller], strict: dict[str, Any]) -> None:
    """At each page with steps: verification, password, enrollment, second factor, and the link of a mail."""
    start = traveller()
    person = TwoAccounts(start.browser, start.url, "")
    person.shop, person.place = strict, start.place
    tabs = Tabs(person)
    tabs.both(registers)
    tabs.both(verifies)
    tabs.both(enters_the_password)
    tabs.both(chooses_an_app)
    for number in (0, 1):
        adds_the_app(tabs.show(number), is_late=number == 1)
    tabs.both(signs_in_again)
    for number in (0, 1):
        enters_a_code(tabs.show(number), is_late=number == 1)
    tabs.both(asks_for_a_link)
    link = tabs.show(0).link("reset")
    person.opens(link.removeprefix(person.url))
    person.fills("New password", NEW + Keys.ENTER)
    person.reads("Your new password is saved. Sign in with it.")
    person.reads(tabs.emails[0])


def test_tabs_approve_devices_for_the_account_they_show(
    traveller: Callable[..., Traveller], place: RunningPlatform, shop: dict[str, Any], television: str
) -> None:
    start = traveller()
    person = TwoAccounts(start.browser, start.url, "")
    person.shop, person.place = shop, start.place
    tabs, codes = Tabs(person), []
    tabs.emails = [register(place, shop) for _ in range(2)]
    for number in (0, 1):
        asked = {"client_id": television, "scope": "openid email"}
        codes.append(requests.post(f"{place.url}{person.root}/device_authorization", asked, timeout=60).json())
        tabs.show(number).opens(f"{person.root}/device?user_code={codes[number]['user_code']}")
        person.reads("to continue to Television")
    for number in (0, 1):
        enters_address_and_password(tabs.show(number))
        if number == 1:
            opens_again(person)
            # It goes on with the account that has signed in, until another one is chosen.
            person.reads(tabs.emails[0])
            request = urlsplit(person.browser.current_url).query
            person.opens(f"{person.root}/signin?{request}&another=1")
            enters_address_and_password(person)
        person.reads(codes[number]["user_code"])
    tabs.show(0).presses("Allow")
    opens_again(person)
    # The page shows whose device it is now.
    person.reads(tabs.emails[1])
    person.presses("Cancel")
    person.reads("Access denied")
    tabs.show(1).presses("Allow")
    person.reads("Your device is signed in")
    for number, error in ((0, "access_denied"), (1, None)):
        poll = {"client_id": television, "grant_type": DEVICE_CODE, "device_code": codes[number]["device_code"]}
        assert requests.post(f"{place.url}{person.root}/token", poll, timeout=60).json().get("error") == error
    # The authenticator of the fixture belongs to the first tab.
    tabs.show(0)

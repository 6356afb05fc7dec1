"""The hosted pages in Chromium: passkeys, codes, narrow and wide, light and dark, and without scripts."""

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import FAULTS, PASSWORD, Visitor
from tests.mfa.browser.demo import totp
from tests.openid.node_client import PACKAGES, install_packages
from tests.userflow.tenants.test_branding import EVERYTHING, encoded, picture

pytestmark = [pytest.mark.needs("chromium", "chromedriver", "node"), pytest.mark.timeout(300)]
SIZES = {"phone": (320, 640), "laptop": (1280, 800)}
# The id of each rule that the page violates, and the elements.
VIOLATIONS = """
const done = arguments[0];
axe.run().then((found) => done(found.violations.map((one) => [one.id, one.nodes.map((node) => node.html)])));
"""
PICTURES = os.environ.get("PICTURES")


@pytest.fixture(scope="session")
def shop(place: RunningPlatform) -> dict[str, Any]:
    """A tenant with an application and an admin's token."""
    tenant = place.new_tenant("Maple Street Books")
    admin = {"username": tenant["admin"]["username"], "password": PASSWORD}
    tenant["token"] = place.call("POST", "/uflow/admin/auth/login", admin)["access_token"]
    callback = f"http://127.0.0.1:{place.running.port}/callback"
    body = {"name": "Book shop", "type": "public", "redirect_uris": [callback], "self_registration": True}
    made = place.call("POST", f"/clientms/tenants/{tenant['tenant_id']}/clients", body, token=tenant["token"])
    return {**tenant, "callback": callback, "application": made["client_id"]}


class Person(Visitor):
    """An end user of the shop."""

    shop: dict[str, Any]

    @property
    def root(self) -> str:
        return f"/t/{self.shop['slug']}"

    def enrolls(self, kind: str = "") -> None:
        """Open the page that adds a factor, which asks for the password first: a session alone proves nothing."""
        self.opens(f"{self.root}/enroll{kind}")
        self.reads("Confirm that it is you")
        self.fills("Password", PASSWORD + Keys.ENTER)
        self.is_at(f"{self.root}/enroll{kind}")

    def begins(self, **asked: str) -> None:
        """Come from the application."""
        query = {
            "client_id": self.shop["application"],
            "response_type": "code",
            "redirect_uri": self.shop["callback"],
            "scope": "openid profile email",
            "state": "s",
            "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
            "code_challenge_method": "S256",
            **asked,
        }
        self.opens(f"{self.root}/authorize?" + "&".join(f"{name}={value}" for name, value in query.items()))

    def is_back(self) -> None:
        """Wait until the application has a code."""
        self.waits_until(lambda: self.browser.current_url.startswith(f"{self.shop['callback']}?code="))

    def looks(self, name: str) -> None:
        """Check the page for faults at each width and theme, and take screenshots if the environment asks for them."""
        command: Callable[..., Any] = self.browser.execute_cdp_cmd  # type: ignore[attr-defined]  # Chromium's driver has it
        for size, (width, height) in SIZES.items():
            for theme in ("light", "dark"):
                shown = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
                command("Emulation.setDeviceMetricsOverride", shown)
                command("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})
                assert self.browser.execute_script(FAULTS) == []
                self.browser.execute_script((PACKAGES / "axe-core" / "axe.min.js").read_text())
                assert self.browser.execute_async_script(VIOLATIONS) == []
                scrolls = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
                assert self.browser.execute_script(scrolls) <= 0, f"{name} is too wide at {width}"
                if PICTURES:
                    Path(PICTURES).mkdir(parents=True, exist_ok=True)
                    self.browser.save_screenshot(f"{PICTURES}/{name}-{size}-{theme}.png")
        command("Emulation.setEmulatedMedia", {"features": []})
        command("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture
def person(browser: webdriver.Chrome, place: RunningPlatform, shop: dict[str, Any]) -> Person:
    browser.implicitly_wait(10)
    install_packages()
    visitor = Person(browser, place.url, "")
    visitor.shop = shop
    return visitor


def register(place: RunningPlatform, shop: dict[str, Any]) -> str:
    """Register a user with the password PASSWORD; return the address."""
    email = f"vera-{secrets.token_hex(3)}@example.com"
    named = {"tenant_id": shop["tenant_id"], "client_id": shop["client_id"]}
    place.call(
        "POST", "/uflow/user/clients/register", {"email": email, "password": PASSWORD, "name": "Vera Visitor", **named}
    )
    return email


def test_register_consent_and_account(person: Person) -> None:
    email = f"nora-{secrets.token_hex(3)}@example.com"
    person.begins()
    person.reads("to continue to Book shop")
    person.looks("sign-in")
    person.presses("Create an account")
    person.looks("register")
    person.fills("Your name", "Nora Newcomer")
    person.fills("E-mail address", email)
    person.fills("Password", "password1234")
    person.presses("Create account")
    person.looks("register-error")
    person.fills("Password", PASSWORD)
    person.presses("Create account")
    person.reads("Allow Book shop to use your account?")
    person.looks("consent")
    person.presses("Allow")
    person.is_back()
    person.opens(f"{person.root}/account")
    person.looks("account")
    for page in ("security", "devices", "applications"):
        person.opens(f"{person.root}/account/{page}")
        person.looks(f"account-{page}")
    person.opens(f"{person.root}/signout")
    person.looks("sign-out")
    person.presses("Sign out")
    person.reads("You are signed out.")
    assert page_bytes(person) < 60_000


def test_double_clicks_do_what_one_click_does(person: Person) -> None:
    """On a slow network, with the script that sends a form once. test_browser_double_clicks.py has every form without it."""
    command: Callable[..., Any] = person.browser.execute_cdp_cmd  # type: ignore[attr-defined]  # Chromium's driver has it
    email = f"nora-{secrets.token_hex(3)}@example.com"
    person.begins()
    command("Network.enable", {})
    slow = {"offline": False, "latency": 300, "downloadThroughput": -1, "uploadThroughput": -1}
    command("Network.emulateNetworkConditions", slow)
    try:
        person.presses("Create an account")
        person.fills("E-mail address", email)
        person.fills("Password", PASSWORD)
        double_clicks(person, "Create account")
        person.reads("Allow Book shop to use your account?")
        double_clicks(person, "Allow")
        person.is_back()
        person.opens(f"{person.root}/signout")
        double_clicks(person, "Sign out")
        person.reads("You are signed out.")
        person.begins()
        person.fills("E-mail address", email)
        person.fills("Password", PASSWORD)
        double_clicks(person, "Sign in")
        person.is_back()
    finally:
        command("Network.emulateNetworkConditions", {**slow, "latency": 0})


def double_clicks(person: Person, label: str) -> None:
    button = person.browser.find_element(By.XPATH, f"//button[normalize-space()='{label}']")
    # The pointer jumps: nothing depends on its way.
    ActionChains(person.browser, duration=0).double_click(button).perform()


def test_tabs_with_two_accounts_sign_in_their_own(place: RunningPlatform, shop: dict[str, Any], person: Person) -> None:
    first, second = register(place, shop), register(place, shop)
    person.opens(f"{person.root}/signin")
    person.fills("E-mail address", first)
    tab = person.browser.current_window_handle
    person.browser.switch_to.new_window("tab")
    person.opens(f"{person.root}/signin")
    person.fills("E-mail address", second)
    person.fills("Password", "wrong" + Keys.ENTER)
    person.reads("incorrect")
    person.browser.close()
    person.browser.switch_to.window(tab)
    person.fills("Password", PASSWORD + Keys.ENTER)
    person.is_at(f"{person.root}/account")
    person.reads(first)


def test_branded_pages(place: RunningPlatform, shop: dict[str, Any], person: Person) -> None:
    path = f"/uflow/admin/tenants/{shop['tenant_id']}/branding"
    logo = encoded(picture(size=(300, 90)))
    texts = {"en": {"signin_heading": "Welcome, reader", "signin_intro": "One account for every shop."}}
    branding = {**EVERYTHING, "logo": logo, "texts": texts}
    place.call("PATCH", path, branding, token=shop["token"])
    try:
        person.opens(f"{person.root}/signin")
        person.reads("Welcome, reader")
        assert person.browser.execute_script("return document.querySelector('.logo').naturalWidth") == 300
        # With a logo of one color, whose bytes do not count.
        assert page_bytes(person) < 60_000
        person.looks("branded-sign-in")
        (footer,) = person.browser.find_elements(By.TAG_NAME, "footer")
        assert footer.text.split() == ["Terms", "Privacy", "Help"]
    finally:
        place.call("PATCH", path, dict.fromkeys(branding), token=shop["token"])


def page_bytes(person: Person) -> int:
    """Return the size of the page and everything that it loads."""
    entries = "performance.getEntriesByType"
    total = f"return [...{entries}('resource'), ...{entries}('navigation')].reduce((sum, one) => sum + one.decodedBodySize, 0)"
    return int(person.browser.execute_script(total))


def test_password_app_and_backup_codes(place: RunningPlatform, shop: dict[str, Any], person: Person) -> None:
    email = register(place, shop)
    person.opens(f"{person.root}/signin")
    person.fills("E-mail address", email)
    person.looks("password")
    person.fills("Password", "wrong" + Keys.ENTER)
    person.reads("incorrect")
    person.looks("password-error")
    person.fills("Password", PASSWORD + Keys.ENTER)
    person.is_at(f"{person.root}/account")
    person.enrolls()
    person.looks("enroll")
    person.browser.find_element(By.CSS_SELECTOR, "button.choice").click()
    person.presses("Cannot scan the code?")
    person.looks("enroll-app")
    secret = person.browser.find_element(By.TAG_NAME, "code").text.replace(" ", "")
    person.fills("Six digits", totp(secret, time.time()))
    person.presses("Continue")
    person.reads("Save your backup codes")
    person.looks("backup-codes")
    code = person.browser.find_element(By.TAG_NAME, "code").text
    person.presses("I have saved them")
    person.reads("Sign-in and security")
    person.looks("account-factors")
    person.opens(f"{person.root}/signout")
    person.presses("Sign out")
    person.reads("You are signed out.")
    person.begins()
    person.fills("E-mail address", email)
    person.fills("Password", PASSWORD + Keys.ENTER)
    person.reads("Confirm that it is you")
    person.looks("second-step")
    person.presses("Backup code")
    person.fills("Backup code", code)
    person.looks("second-step-backup")
    person.presses("Continue")
    person.presses("Allow")
    person.is_back()


def test_passkey_signs_in(place: RunningPlatform, shop: dict[str, Any], person: Person) -> None:
    email = register(place, shop)
    person.opens(f"{person.root}/signin")
    person.fills("E-mail address", email)
    person.fills("Password", PASSWORD + Keys.ENTER)
    person.is_at(f"{person.root}/account")
    person.enrolls("/passkey")
    person.looks("enroll-passkey")
    person.presses("Create a passkey")
    person.reads("Your passkey is ready.")
    person.opens(f"{person.root}/signout")
    person.presses("Sign out")
    # The virtual authenticator answers the request that waits in the field of the address at once.
    person.is_at(f"{person.root}/account")
    person.begins(prompt="login", acr_values="aal2")
    person.reads("Allow Book shop to use your account?")


def test_passkey_signs_in_by_its_button(place: RunningPlatform, shop: dict[str, Any], person: Person) -> None:
    email = register(place, shop)
    person.opens(f"{person.root}/signin")
    person.fills("E-mail address", email)
    person.fills("Password", PASSWORD + Keys.ENTER)
    person.is_at(f"{person.root}/account")
    person.enrolls("/passkey")
    person.presses("Create a passkey")
    person.reads("Your passkey is ready.")
    command: Callable[..., Any] = person.browser.execute_cdp_cmd  # type: ignore[attr-defined]  # Chromium's driver has it
    # The authenticator answers at once where the browser offers passkeys in the field of the address, as it does at the end.
    without_offer = {"source": "delete PublicKeyCredential.isConditionalMediationAvailable"}
    script = command("Page.addScriptToEvaluateOnNewDocument", without_offer)
    person.opens(f"{person.root}/signout")
    person.presses("Sign out")
    person.reads("You are signed out.")
    person.presses("Sign in with a passkey")
    person.is_at(f"{person.root}/account")
    command("Page.removeScriptToEvaluateOnNewDocument", script)
    person.begins(prompt="login")
    person.reads("Allow Book shop to use your account?")

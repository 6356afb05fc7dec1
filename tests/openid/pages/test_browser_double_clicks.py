"""Double clicks at the hosted pages in Chromium, on a slow network: every form does what one click does."""

import re
import secrets
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from tests.console.browser.place import Place
from tests.console.browser.visitor import PASSWORD
from tests.mfa.browser.demo import totp
from tests.openid.pages.test_browser import double_clicks, register
from tests.openid.pages.test_browser import shop as shop
from tests.openid.pages.test_browser_journeys import NEW, Traveller
from tests.openid.pages.test_browser_journeys import traveller as traveller
from tests.openid.pages.test_browser_walk import deletion as deletion
from tests.openid.pages.test_browser_walk import television as television

pytestmark = [pytest.mark.needs("chromium", "chromedriver", "node"), pytest.mark.timeout(300)]


class Hasty(Traveller):
    """A person who double-clicks every button."""

    def sends(self, label: str, text: str) -> None:
        """Double-click a button and read the page that follows."""
        double_clicks(self, label)
        self.reads(text)

    def proves(self, label: str, proof: str, page: str) -> None:
        """Open a page of the account, and prove first that it is the user."""
        self.opens(f"{self.root}/{page}")
        if label == "Backup code":
            self.presses("Backup code")
        self.fills(label, proof)
        double_clicks(self, "Continue")
        self.is_at(f"{self.root}/{page.partition('?')[0]}")


def registers_and_changes_everything(person: Hasty) -> None:
    person.opens(f"{person.root}/register")
    person.fills("E-mail address", person.email)
    person.fills("Password", PASSWORD)
    person.sends("Create account", "Your profile")
    person.fills("Name", "Nora")
    person.sends("Save", "Your changes are saved.")
    person.sends("Send a mail to verify it", "a new mail is on its way")
    (code,) = re.findall(r"(?<![\w.-])[0-9]{6}(?![\w.-]*\w)", person.mail(f"{person.root}/verify-email#"))
    person.fills("Code from the mail", code)
    person.sends("Verify", "Your e-mail address is verified.")
    person.proves("Password", PASSWORD, "account/email")
    person.fills("E-mail address", f"changed-{person.email}")
    person.sends("Change", "We have sent a mail to the new address.")
    person.proves("Password", PASSWORD, "account/password")
    person.fills("New password", NEW)
    person.sends("Save the password", "Your new password is saved.")
    # The new password is newer than the session, and proves nothing in it.
    person.opens(f"{person.root}/signout")
    person.sends("Sign out", "You are signed out.")
    person.fills("E-mail address", person.email)
    person.sends("Continue", "Enter your password")
    person.fills("Password", NEW)
    person.sends("Sign in", "Your profile")


def adds_an_app(person: Hasty) -> list[str]:
    """Add an authenticator app, and new backup codes; return these."""
    person.proves("Password", NEW, "enroll?own=1")
    choice = person.browser.find_element(By.CSS_SELECTOR, "button.choice")
    ActionChains(person.browser).double_click(choice).perform()
    person.presses("Cannot scan the code?")
    secret = person.browser.find_element(By.TAG_NAME, "code").text.replace(" ", "")
    person.fills("Six digits", totp(secret, time.time()))
    person.sends("Continue", "Save your backup codes")
    person.opens(f"{person.root}/account/backup-codes")
    # The app is newer than the session.
    person.fills("Password", NEW)
    double_clicks(person, "Continue")
    person.fills("Code from your authenticator app", totp(secret, time.time() + 30))
    double_clicks(person, "Continue")
    person.is_at(f"{person.root}/account/backup-codes")
    person.sends("Create new codes", "Save your backup codes")
    return [code.text for code in person.browser.find_elements(By.TAG_NAME, "code")]


def approves_applications(person: Hasty, television: str) -> None:
    person.begins()
    double_clicks(person, "Allow")
    person.is_back()
    asked = {"client_id": television, "scope": "openid"}
    codes = requests.post(f"{person.url}{person.root}/device_authorization", asked, timeout=60).json()
    person.opens(f"{person.root}/device")
    person.fills("Code on your device", codes["user_code"])
    person.sends("Continue", "Does your device show this code?")
    person.sends("Allow", "Your device is signed in")
    person.begins(prompt="select_account")
    choice = person.browser.find_element(By.CSS_SELECTOR, "button.choice")
    ActionChains(person.browser).double_click(choice).perform()
    person.is_back()
    person.opens(f"{person.root}/account/applications")
    person.sends("Disconnect", "The application no longer has access to your account.")


def signs_in_with_a_new_password(person: Hasty, code: str) -> None:
    person.opens(f"{person.root}/signout")
    person.presses("Sign out")
    person.reads("You are signed out.")
    person.opens(f"{person.root}/forgot")
    person.fills("E-mail address", person.email)
    person.sends("Send the link", "Check your mail")
    link = person.link("reset")
    person.opens(link.removeprefix(person.url))
    person.fills("Link from the mail", link)
    person.fills("New password", PASSWORD)
    person.sends("Save the password", "Your new password is saved. Sign in with it.")
    person.fills("Password", PASSWORD)
    person.sends("Sign in", "Confirm that it is you")
    person.presses("Backup code")
    person.fills("Backup code", code)
    double_clicks(person, "Continue")
    person.is_at(f"{person.root}/account")


def accepts_an_invitation(person: Hasty) -> None:
    person.email = f"ivy-{secrets.token_hex(3)}@example.com"
    body = {"email": person.email, "kind": "end_user"}
    person.place.call("POST", "/uflow/admin/invitations", body, token=person.shop["token"])
    link = person.link("invitation")
    person.opens(link.removeprefix(person.url))
    person.fills("Link from the mail", link)
    person.fills("Password", PASSWORD)
    person.sends("Create account", "Your account is ready.")


def test_double_clicks_on_every_form(
    traveller: Callable[..., Traveller], place: Place, shop: dict[str, Any], television: str, deletion: None
) -> None:
    """On a slow network and without the script, which would hold the second click back."""
    start = traveller()
    person = Hasty(start.browser, start.url, "")
    person.shop, person.place, person.email = shop, place, start.email
    person.has_scripts = False
    person.prepare()
    slow = {"offline": False, "latency": 300, "downloadThroughput": -1, "uploadThroughput": -1}
    person.command("Network.emulateNetworkConditions", **slow)
    try:
        registers_and_changes_everything(person)
        codes = adds_an_app(person)
        approves_applications(person, television)
        signs_in_with_a_new_password(person, codes[0])
        person.opens(f"{person.root}/account/security")
        remove = person.browser.find_element(By.CSS_SELECTOR, "a[href*='account/remove/']")
        page = urlsplit(str(remove.get_attribute("href"))).path.removeprefix(f"{person.root}/")
        person.proves("Backup code", codes[1], page)
        person.sends("Remove", "The second factor is removed.")
        # A tenant keeps one user.
        register(place, shop)
        person.proves("Password", PASSWORD, "account/delete")
        person.sends("Delete my account", "Your account is deleted.")
        accepts_an_invitation(person)
    finally:
        person.command("Network.emulateNetworkConditions", **{**slow, "latency": 0})
        person.has_scripts = True
        person.prepare()

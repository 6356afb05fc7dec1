"""Double clicks at the hosted pages in Chromium, on a slow network: every form does what one click does.

test_repeated_forms.py has the forms that would cost more here: the name of a passkey and a browser that is forgotten.
"""

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

from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import PASSWORD
from tests.mfa.browser.demo import totp
from tests.mfa.people import some_phone
from tests.openid.pages.test_browser import double_clicks, register
from tests.openid.pages.test_browser import shop as shop
from tests.openid.pages.test_browser_journeys import NEW, Traveller
from tests.openid.pages.test_browser_journeys import traveller as traveller
from tests.openid.pages.test_browser_walk import code_to
from tests.openid.pages.test_browser_walk import deletion as deletion
from tests.openid.pages.test_browser_walk import television as television

pytestmark = [pytest.mark.needs("chromium", "chromedriver", "node"), pytest.mark.timeout(300)]


class Hasty(Traveller):
    """A person who double-clicks every button."""

    def opens(self, path: str) -> "Hasty":
        """Go to a page. The network is slow for forms alone, which saves half of the time."""
        self.set_latency(0)
        super().opens(path)
        return self

    def set_latency(self, milliseconds: int) -> None:
        """Delay each response by so much."""
        unlimited = {"downloadThroughput": -1, "uploadThroughput": -1}
        self.command("Network.emulateNetworkConditions", offline=False, latency=milliseconds, **unlimited)

    def double_clicks(self, label: str) -> None:
        """Double-click a button on a slow network."""
        self.set_latency(300)
        double_clicks(self, label)

    def chooses(self) -> None:
        """Double-click the first choice of the page on a slow network."""
        self.set_latency(300)
        choice = self.browser.find_element(By.CSS_SELECTOR, "button.choice")
        ActionChains(self.browser, duration=0).double_click(choice).perform()

    def sends(self, label: str, text: str) -> None:
        """Double-click a button and read the page that follows."""
        self.double_clicks(label)
        self.reads(text)

    def proves(self, label: str, proof: str, page: str) -> None:
        """Open a page of the account, and prove first that it is the user."""
        self.opens(f"{self.root}/{page}")
        if label == "Backup code":
            self.presses("Backup code")
        self.fills(label, proof)
        self.double_clicks("Continue")
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
    person.fills("Password", NEW)
    person.sends("Sign in", "Your profile")


def signs_out_elsewhere(person: Hasty) -> None:
    body = {"client_id": person.shop["client_id"], "email": person.email, "password": NEW}
    person.place.call("POST", "/uflow/auth/enduser/login", body)
    person.opens(f"{person.root}/account/devices")
    person.sends("Sign out everywhere else", "Signed out there.")


def adds_an_app(person: Hasty) -> list[str]:
    """Add an authenticator app, and new backup codes; return these."""
    person.proves("Password", NEW, "enroll?own=1")
    person.chooses()
    person.presses("Cannot scan the code?")
    secret = person.browser.find_element(By.TAG_NAME, "code").text.replace(" ", "")
    person.fills("Six digits", totp(secret, time.time()))
    person.sends("Continue", "Save your backup codes")
    person.opens(f"{person.root}/account/backup-codes")
    # The app is newer than the session.
    person.fills("Password", NEW)
    person.double_clicks("Continue")
    person.fills("Code from your authenticator app", totp(secret, time.time() + 30))
    person.double_clicks("Continue")
    person.is_at(f"{person.root}/account/backup-codes")
    person.sends("Create new codes", "Save your backup codes")
    return [code.text for code in person.browser.find_elements(By.TAG_NAME, "code")]


def approves_applications(person: Hasty, television: str) -> None:
    person.begins()
    person.double_clicks("Allow")
    person.is_back()
    asked = {"client_id": television, "scope": "openid"}
    codes = requests.post(f"{person.url}{person.root}/device_authorization", asked, timeout=60).json()
    person.opens(f"{person.root}/device")
    person.fills("Code on your device", codes["user_code"])
    person.sends("Continue", "Does your device show this code?")
    person.sends("Allow", "Your device is signed in")
    person.begins(prompt="select_account")
    person.chooses()
    person.is_back()
    person.opens(f"{person.root}/account/applications")
    person.sends("Disconnect", "The application no longer has access to your account.")


def undoes_a_change_of_address(person: Hasty) -> None:
    """Undo the change of an admin, which signs out everywhere."""
    former, path = person.email, f"/uflow/user/enduser/{person.shop['tenant_id']}"
    listed = f"/uflow/user/enduser/list?tenant_id={person.shop['tenant_id']}&email={former}"
    users = person.place.call("GET", listed, token=person.shop["token"])
    person.email = f"new-{former}"
    person.place.call("PUT", f"{path}/{users['users'][0]['id']}", {"email": person.email}, token=person.shop["token"])
    token = person.link("verify-email").partition("#token=")[2]
    person.place.call("POST", "/uflow/user/email/verify", {"token": token})
    person.email = former
    (link,) = re.findall(rf"\S+{re.escape(person.root)}/email-undo\S+", person.mail(f"{person.root}/email-undo"))
    person.opens(link.removeprefix(person.url))
    person.fills("Link from the mail", link)
    person.sends("Restore the address", "Your e-mail address is restored")


def signs_in_with_a_new_password(person: Hasty, code: str) -> None:
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
    person.double_clicks("Continue")
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


def adds_a_phone(person: Hasty) -> None:
    phone = some_phone()
    person.proves("Password", PASSWORD, "enroll/phone?own=1")
    person.fills("Mobile number", phone)
    person.sends("Continue", "We have sent a code")
    person.fills("Code from the text message", code_to(person, phone))
    person.sends("Continue", "Your new second factor is ready.")


def test_double_clicks_on_every_form(
    traveller: Callable[..., Traveller], place: RunningPlatform, shop: dict[str, Any], television: str, deletion: None
) -> None:
    """On a slow network and without the script, which would hold the second click back."""
    start = traveller()
    person = Hasty(start.browser, start.url, "")
    person.shop, person.place, person.email = shop, place, start.email
    person.has_scripts = False
    person.prepare()
    try:
        registers_and_changes_everything(person)
        signs_out_elsewhere(person)
        codes = adds_an_app(person)
        approves_applications(person, television)
        undoes_a_change_of_address(person)
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
        adds_a_phone(person)
    finally:
        person.set_latency(0)
        person.has_scripts = True
        person.prepare()

"""Drive the demo page as a user does: fields by their labels, buttons by their texts."""

import hashlib
import hmac
import json
import re
import secrets
import struct
import time
from base64 import b32decode
from dataclasses import dataclass, field
from pathlib import Path

from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement

from tests.browsers import wait_on

PASSWORD = "a long enough pass 7"


def totp(secret: str, at: float) -> str:
    """RFC 6238 with its defaults, from the standard library alone."""
    mac = hmac.digest(b32decode(secret.replace(" ", "")), struct.pack(">Q", int(at) // 30), hashlib.sha1)
    start = mac[-1] & 15
    return f"{(int.from_bytes(mac[start : start + 4], 'big') & 0x7FFFFFFF) % 10**6:06d}"


@dataclass
class Demo:
    """One visit."""

    browser: WebDriver
    outbox: Path
    email: str = field(default_factory=lambda: f"visitor-{secrets.token_hex(5)}@example.com")

    def form(self, id: str, **fields: str) -> None:
        """Fill a form in and send it."""
        place = self.visible(f"#{id}")
        button = f"#{id} button:not([type=button])"
        # The action before has ended: it moves the focus, away from a field that is being filled in.
        self.visible(button)
        for name, value in fields.items():
            box = place.find_element(By.NAME, name)
            box.clear()
            box.send_keys(value)
        self.visible(button).click()

    def press(self, text: str) -> None:
        """Press the button with this text."""
        self.visible(f"//button[normalize-space()='{text}']", By.XPATH).click()

    def visible(self, selector: str, by: str = By.CSS_SELECTOR) -> WebElement:
        """Wait until such an element is visible, and enabled: the page ignores buttons until an action has ended."""

        def look(browser: WebDriver) -> WebElement | None:
            shown = (found for found in browser.find_elements(by, selector) if found.is_displayed())
            return next((found for found in shown if found.is_enabled()), None)

        found: WebElement = wait_on(self.browser).until(look, f"{selector} is not to be seen: {self.said()}")
        return found

    def shows(self, text: str) -> None:
        """Wait until the page shows this message."""
        wait_on(self.browser).until(lambda _: text in self.said(), f"{text!r} was not said")

    def said(self) -> str:
        """Return the current message of the page."""
        return " ".join(self.browser.find_element(By.ID, id).text for id in ("status", "problem"))

    def register(self) -> None:
        self.form("register", name="Vera Visitor", email=self.email, password=PASSWORD)
        self.shows("Registered and signed in")

    def sign_out(self) -> None:
        self.press("Sign out")
        self.shows("Signed out.")

    def sign_in(self) -> None:
        self.form("sign-in", email=self.email, password=PASSWORD)

    def confirm_identity(self) -> None:
        """Enter the password that the page asks for before a first factor is added."""
        self.form("second-password", password=PASSWORD)

    def set_up_app(self, *, signed_in: bool = True) -> str:
        """Set an authenticator app up and confirm it; return its secret."""
        self.press("Set up an authenticator app")
        if signed_in:
            self.confirm_identity()
        secret = self.visible("#totp-secret").text
        picture = self.visible("#totp-qr")
        wait_on(self.browser).until(lambda _: picture.get_attribute("naturalWidth") != "0")
        self.form("confirm-totp", code=totp(secret, time.time()))
        self.visible("#backup-codes")
        return secret

    def backup_codes(self) -> list[str]:
        """The codes that the page shows once."""
        self.visible("#backup-codes code")
        return [code.text for code in self.browser.find_elements(By.CSS_SELECTOR, "#backup-codes code")]

    def signed_in_by(self) -> str:
        """Return the message that the page shows after a sign-in."""
        self.visible("#signed-in-heading")
        wait_on(self.browser).until(lambda _: self.email in self.visible("#who").text)
        return self.visible("#how").text

    def lists(self, *factors: str) -> None:
        """Wait until these are the factors that the page lists; it fetches them after what it says."""
        wait_on(self.browser).until(lambda _: self.factors() == list(factors), f"not {factors}")

    def factors(self) -> list[str]:
        """The lines of the list of factors, without their dates."""
        lines = self.browser.find_elements(By.CSS_SELECTOR, "#factors li")
        return [re.sub(r", since.*", "", line.text, flags=re.DOTALL) for line in lines]

    def last_code(self) -> str:
        """The code of the message that was sent last."""
        body = json.loads(self.outbox.read_text(encoding="utf-8").splitlines()[-1])["body"]
        found = re.search(r"\b\d{6}\b", body)
        assert found is not None, body
        return found[0]

    def complaints(self) -> list[str]:
        """Return what the browser reported: blocked scripts, missing files, uncaught errors."""
        return [
            entry["message"]
            for entry in self.browser.get_log("browser")  # type: ignore[attr-defined]  # Chromium's driver has it
            if "status of 4" not in entry["message"]
        ]

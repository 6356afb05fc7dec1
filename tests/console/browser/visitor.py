"""A user of the console in a real browser: fields by labels, buttons and links by text."""

from collections.abc import Callable
from dataclasses import dataclass

from selenium.common.exceptions import (
    TimeoutException,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement

from tests.browsers import wait_on
from tests.machine.conftest import within

PASSWORD = "correct horse 9 battery"

# The rules of axe label, button-name, link-name, image-alt, duplicate-id-aria, html-has-lang and document-title.
FAULTS = """
const seen = el => el.checkVisibility() && !el.closest('[aria-hidden=true]') && el.type !== 'hidden';
const named = el => (el.labels && el.labels.length && [...el.labels].some(l => l.textContent.trim()))
  || el.getAttribute('aria-label') || el.title
  || (el.getAttribute('aria-labelledby') || '').split(' ').some(id => document.getElementById(id));
const faults = [];
for (const el of document.querySelectorAll('input, select, textarea'))
  if (seen(el) && !['submit', 'button'].includes(el.type) && !named(el)) faults.push('no label: ' + el.outerHTML);
for (const el of document.querySelectorAll('button, a[href]'))
  if (seen(el) && !el.textContent.trim() && !named(el) && !el.querySelector('img[alt]'))
    faults.push('no name: ' + el.outerHTML.slice(0, 200));
for (const el of document.querySelectorAll('img')) if (!el.hasAttribute('alt')) faults.push('no alt: ' + el.outerHTML);
for (const el of document.querySelectorAll('[id]'))
  if (document.querySelectorAll('#' + CSS.escape(el.id)).length > 1) faults.push('id twice: ' + el.id);
if (!document.documentElement.lang) faults.push('no language');
if (!document.title.trim()) faults.push('no title');
return faults;
"""


@dataclass
class Visitor:
    """A user with a browser."""

    browser: WebDriver
    url: str
    username: str

    def opens(self, path: str) -> "Visitor":
        """Go to a page."""
        self.browser.get(self.url + path)
        return self

    def fills(self, label: str, text: str) -> None:
        """Type into the field with this label."""

        def type_in(found: WebElement) -> None:
            field = self.browser.find_element(By.ID, str(found.get_attribute("for")))
            field.clear()
            field.send_keys(text)

        self._with(f"//label[starts-with(normalize-space(), {_quoted(label)})]", type_in)

    def presses(self, text: str) -> None:
        """Press the button or follow the link with this text."""
        said = _quoted(text)
        xpath = (
            f"//*[self::button or self::a or self::summary][@aria-label={said} or normalize-space()={said}"
            f" or (.//span[contains(@class, 'material-symbols')] and contains(normalize-space(), {said}))]"
        )
        self._with(xpath, WebElement.click)

    def follows(self, text: str) -> None:
        """Follow the link with these words, or with an icon and these words, in the sidebar or on the page."""
        said = _quoted(text)
        self._with(f"//a[normalize-space()={said} or .//*[normalize-space(text())={said}]]", WebElement.click)

    def searches(self, text: str) -> None:
        """Search a list."""

        def type_in(field: WebElement) -> None:
            field.clear()
            field.send_keys(text + Keys.ENTER)

        self._with("//input[@name='q' or @id='searchbar']", type_in)

    def is_rejected(self) -> bool:
        """Return whether the page is an error page in the console's frame."""
        return any(said in self.page for said in ("Not allowed", "Not found"))

    def reads(self, text: str) -> None:
        """Wait until the page contains the text, ignoring case."""
        try:
            self.waits_until(lambda: text.lower() in self.page.lower())
        except TimeoutException as late:
            raise AssertionError(f"{text!r} is not on {self.browser.current_url}: {self.page}") from late

    def waits_until(self, holds: Callable[[], bool]) -> None:
        """Wait until the condition holds. Raises TimeoutException."""
        wait_on(self.browser).until(lambda _: holds())

    def is_at(self, path: str) -> None:
        """Wait until the browser shows that page."""
        wait_on(self.browser).until(
            lambda _: self.browser.current_url.split("?")[0] == self.url + path, f"not at {path}"
        )

    @property
    def page(self) -> str:
        """Return the text of the page."""
        return self.browser.find_element(By.TAG_NAME, "body").text

    def sends_password(self, path: str = "/admin/") -> None:
        """Enter name and password on the sign-in page."""
        self.opens(path)
        self.fills("Username", self.username)
        self.fills("Password", PASSWORD)
        self.presses("Sign in")

    def signs_in(self, path: str = "/admin/") -> None:
        """Sign in by password and passkey."""
        self.sends_password(path)
        self.presses("Use a passkey")
        self.is_at(path)

    def enrols_a_passkey(self, name: str) -> None:
        """Enroll a factor at the first sign-in of an admin user who must have one, which completes the sign-in."""
        self.sends_password()
        self.presses("Add a passkey")
        self.fills("Name of the passkey", name)
        self.presses("Add the passkey")
        self.reads("The passkey is enrolled.")
        self.is_at("/admin/")

    def sits_down_for_the_first_time(self) -> None:
        """Enroll a passkey, which completes the sign-in."""
        self.enrols_a_passkey("This laptop")

    def signs_out(self) -> None:
        """Sign out through the account menu."""
        form = self.browser.find_element(By.ID, "logout-form")
        self.browser.execute_script("arguments[0].submit()", form)
        self.reads("You are signed out.")

    def faults(self) -> list[str]:
        """Return the accessibility problems of this page."""
        return list(self.browser.execute_script(FAULTS))

    def overflow(self, width: int) -> int:
        """Return by how much the page is wider than a window of this width, once its layout is stable."""
        self.browser.set_window_size(width, 844)
        script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        within(10, lambda: int(self.browser.execute_script(script)) == 0)
        return int(self.browser.execute_script(script))

    def complaints(self) -> list[str]:
        """Return the errors in the browser's log: blocked scripts, missing files, uncaught errors."""
        log = self.browser.get_log("browser")  # type: ignore[attr-defined]  # Chromium's driver has it
        return [entry["message"] for entry in log if "status of 4" not in entry["message"]]

    def _with(self, xpath: str, do: Callable[[WebElement], None]) -> None:
        """Use the first visible element; the previous page may still be open."""

        def tried(browser: WebDriver) -> bool:
            shown = next((found for found in browser.find_elements(By.XPATH, xpath) if found.is_displayed()), None)
            if shown is not None:
                do(shown)
            return shown is not None

        waiting = wait_on(self.browser)
        try:
            waiting.until(tried)
        except TimeoutException as late:
            raise AssertionError(f"{xpath} is not on {self.browser.current_url}: {self.page}") from late


def _quoted(text: str) -> str:
    return f'"{text}"'

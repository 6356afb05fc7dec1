"""A person in Chromium at the hosted pages: signs in on one page or two, consents or declines, signs out."""

from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.browsers import wait_on
from tests.conformance.tenants import Person

# More pages than any way through a sign-in has.
MOST_PAGES = 12
SECONDS = 20
EMAIL = "input[type=email]:not([readonly]), input[autocomplete~=username]:not([readonly])"
PASSWORD = "input[type=password]"
# Sends a request by POST, as a page of an application does.
POST = """
const form = Object.assign(document.createElement('form'), {method: 'post', action: arguments[0]});
for (const [name, value] of arguments[1])
  form.append(Object.assign(document.createElement('input'), {type: 'hidden', name, value}));
document.body.append(form);
form.submit();
"""


@dataclass
class HostedPages:
    """A browser; pages of the suite begin with `suite`."""

    browser: WebDriver
    suite: str

    def forget(self) -> None:
        """Remove all cookies: the browser of a person who was never here."""
        self.browser.get("about:blank")
        self.browser.execute_cdp_cmd("Network.clearBrowserCookies", {})

    def open(self, url: str, method: str) -> None:
        """Open the address of a request."""
        if method == "POST":
            parts = urlsplit(url)
            self.browser.get("about:blank")
            self.browser.execute_script(POST, url.split("?")[0], parse_qsl(parts.query, keep_blank_values=True))
            wait_on(self.browser, seconds=SECONDS).until(lambda browser: browser.current_url != "about:blank")
        else:
            self.browser.get(url)
        self._wait_until_loaded()

    def screenshot(self) -> bytes:
        """Return the page as a PNG."""
        return bytes(self.browser.get_screenshot_as_png())

    @property
    def is_back(self) -> bool:
        """Whether the browser has returned to the suite."""
        return self.browser.current_url.startswith(self.suite)

    @property
    def asks_to_sign_in(self) -> bool:
        """Whether the page asks for an address or a password."""
        return bool(self._visible(EMAIL) or self._visible(PASSWORD))

    def finish(self, person: Person, *, consents: bool = True, signs_in: bool = True) -> bool:
        """Go through the pages as this person; return whether the browser came back to the suite."""
        for _ in range(MOST_PAGES):
            if self.is_back:
                self._wait_until_received()
                return True
            if self.asks_to_sign_in and not signs_in:
                return False
            button = self._next_button(person, consents=consents)
            if button is None:
                return False
            self._press(button)
        return self.is_back

    def _next_button(self, person: Person, *, consents: bool) -> WebElement | None:
        """Fill in the form of the page; return the button that sends it, or None if the page leads nowhere."""
        decision = self._visible(f"button[name={'allow' if consents else 'deny'}]")
        if decision:
            return decision[0]
        for selector, text in ((EMAIL, person.email), (PASSWORD, person.password)):
            for field in self._visible(selector)[:1]:
                field.clear()
                field.send_keys(text)
        fields = self._visible(PASSWORD) or self._visible(EMAIL)
        if fields:
            return fields[0].find_element(By.XPATH, "ancestor::form//button[not(@type) or @type='submit']")
        return next(iter(self._visible("form[method=post] button")), None)

    def _press(self, button: WebElement) -> None:
        """Press a button and wait for the next page."""
        root = self.browser.find_element(By.TAG_NAME, "html")
        button.click()
        wait_on(self.browser, seconds=SECONDS).until(lambda browser: browser.find_element(By.TAG_NAME, "html") != root)
        self._wait_until_loaded()

    def _wait_until_loaded(self) -> None:
        loaded = "return document.readyState === 'complete'"
        wait_on(self.browser, seconds=SECONDS).until(lambda _: self.browser.execute_script(loaded))

    def _wait_until_received(self) -> None:
        """Wait until the suite's page has sent the response on; pages after a logout do not."""
        with suppress(TimeoutException):
            wait_on(self.browser, seconds=5).until(lambda browser: browser.find_element(By.ID, "submission_complete"))

    def _visible(self, selector: str) -> list[WebElement]:
        try:
            fields = self.browser.find_elements(By.CSS_SELECTOR, selector)
            return [field for field in fields if field.is_displayed()]
        except WebDriverException:
            return []

"""One headless Chromium for each test process, and a tab of its own in it for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.virtual_authenticator import Protocol, Transport, VirtualAuthenticatorOptions
from selenium.webdriver.support.wait import WebDriverWait

from tests.machine.groups import program

WAIT_SECONDS = 60
# Selenium looks every half second, longer than most pages take.
POLL_SECONDS = 0.05
ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
SIZE = (1280, 900)


def wait_on(browser: webdriver.Remote, *, seconds: float = WAIT_SECONDS) -> WebDriverWait[webdriver.Remote]:
    """Return a wait that looks often.

    It ignores every error of the driver: while a page is replaced by the next one, elements are missing or stale, or, in an
    error without a class of its own, not of this document.
    """
    return WebDriverWait(browser, seconds, poll_frequency=POLL_SECONDS, ignored_exceptions=(WebDriverException,))


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Start Chromium with an empty profile."""
    driver = start_chromium(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()


def start_chromium(profile: Path, *more: str) -> webdriver.Chrome:
    """Start Chromium with this folder for its state, and more arguments."""
    options = Options()
    options.binary_location = str(program("chromium"))
    for argument in (*ARGUMENTS, *more, f"--user-data-dir={profile}", f"--window-size={SIZE[0]},{SIZE[1]}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(str(program("chromedriver"))))


@pytest.fixture
def browser(chromium: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """Open a tab without cookies, storage, passkeys or log entries, with an authenticator that verifies its user."""
    blank = chromium.current_window_handle
    chromium.switch_to.new_window("tab")
    chromium.set_window_size(*SIZE)
    chromium.implicitly_wait(0)
    chromium.get_log("browser")  # type: ignore[attr-defined]  # Chromium's driver has it
    chromium.add_virtual_authenticator(
        VirtualAuthenticatorOptions(
            protocol=Protocol.CTAP2,
            transport=Transport.INTERNAL,
            has_resident_key=True,
            has_user_verification=True,
            is_user_verified=True,
        )
    )
    yield chromium
    chromium.remove_virtual_authenticator()
    chromium.execute_cdp_cmd("Network.clearBrowserCookies", {})
    chromium.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
    for handle in chromium.window_handles:
        if handle != blank:
            chromium.switch_to.window(handle)
            chromium.close()
    chromium.switch_to.window(blank)

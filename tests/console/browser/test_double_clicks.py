"""Double clicks in the console on a slow network: both reach the server only without the script that sends a form once."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import PASSWORD, Visitor
from tests.mfa.browser.demo import totp

pytestmark = [pytest.mark.needs("chromium", "chromedriver"), pytest.mark.timeout(300)]

NETWORK = {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1}
COUNT_SENT_FORMS = """
sessionStorage.sent = 0;
addEventListener("submit", (event) => { if (!event.defaultPrevented) sessionStorage.sent++; });
"""


def command(visitor: Visitor, name: str, **parameters: Any) -> None:
    visitor.browser.execute_cdp_cmd(name, parameters)  # type: ignore[attr-defined]  # Chromium's driver has it


@contextmanager
def double_click(visitor: Visitor, label: str) -> Iterator[None]:
    """Double-click the first button with this text and count what it sends; the network is slow within the block."""
    button = visitor.browser.find_element(By.XPATH, f"//main//button[normalize-space()='{label}']")
    visitor.browser.execute_script(COUNT_SENT_FORMS)
    command(visitor, "Network.emulateNetworkConditions", **NETWORK, latency=300)
    ActionChains(visitor.browser).double_click(button).perform()
    yield
    command(visitor, "Network.emulateNetworkConditions", **NETWORK, latency=0)


def sent_forms(visitor: Visitor) -> int:
    """Return how many forms the last double click has sent."""
    return int(visitor.browser.execute_script("return sessionStorage.sent"))


def enroll_an_app(visitor: Visitor) -> str:
    """Enroll an authenticator app, which the first sign-in requires; return its secret."""
    visitor.presses("Set up an app")
    visitor.presses("Cannot scan the code?")
    visitor.waits_until(lambda: visitor.browser.find_element(By.ID, "totp-secret").text != "")
    secret = visitor.browser.find_element(By.ID, "totp-secret").text
    visitor.fills("Code from", totp(secret, time.time()))
    with double_click(visitor, "Finish"):
        visitor.reads("The authenticator app is enrolled.")
    assert sent_forms(visitor) == 2
    assert len(set(re.findall(r"[0-9A-Z]{4}(?:-[0-9A-Z]{4}){3}", visitor.page))) == 10
    visitor.presses("I have saved them")
    visitor.is_at("/admin/")
    return secret


def sign_in(visitor: Visitor, secret: str) -> None:
    """Sign in by password and app, with a double click at each step."""
    visitor.opens("/admin/login/")
    visitor.fills("Username", visitor.username)
    visitor.fills("Password", PASSWORD)
    with double_click(visitor, "Sign in"):
        visitor.is_at("/admin/second-step/")
    # That of now is used.
    visitor.fills("Code from", totp(secret, time.time() + 30))
    with double_click(visitor, "Continue"):
        visitor.is_at("/admin/")
    assert sent_forms(visitor) == 2


def add_client(visitor: Visitor, name: str) -> int:
    """Add a client with a double click; return how many forms were sent."""
    visitor.opens("/admin/userflow/client/add/machine/")
    visitor.fills("Name", name)
    with double_click(visitor, "Save"):
        visitor.reads("The client is created.")
    sent = sent_forms(visitor)
    assert len(visitor.browser.find_elements(By.XPATH, "//*[starts-with(text(), 'ics_')]")) > 0
    visitor.opens(f"/admin/userflow/client/?q={name}")
    assert len(visitor.browser.find_elements(By.LINK_TEXT, name)) == 1
    return sent


def test_double_clicks_do_what_one_click_does(place: RunningPlatform, visit: Callable[[str], Visitor]) -> None:
    visitor, tenant = visit(place.new_operator()), place.new_tenant("Double Ltd")
    visitor.sends_password()
    command(visitor, "Network.enable")
    command(visitor, "Network.setBlockedURLs", urls=["*/sent_once.js"])
    try:
        secret = enroll_an_app(visitor)
        visitor.signs_out()
        sign_in(visitor, secret)
        visitor.opens(f"/admin/inside/?tenant={tenant['tenant_id']}")
        visitor.presses("Open tenant")
        assert add_client(visitor, "Batch-without-script") == 2
        command(visitor, "Network.setBlockedURLs", urls=[])
        assert add_client(visitor, "Batch-with-script") == 1
    finally:
        command(visitor, "Network.setBlockedURLs", urls=[])
        command(visitor, "Network.emulateNetworkConditions", **NETWORK, latency=0)
        command(visitor, "Network.disable")

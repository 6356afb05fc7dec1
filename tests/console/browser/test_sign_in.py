"""Sign-in through a real browser with a virtual authenticator."""

import re
import time
from collections.abc import Callable

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browsers import wait_on
from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import PASSWORD, Visitor
from tests.mfa.browser.demo import totp
from tests.mfa.people import a_step_lasts

pytestmark = [pytest.mark.needs("chromium", "chromedriver"), pytest.mark.timeout(300)]


def test_new_operator_enrolls_passkey_and_signs_in(place: RunningPlatform, visit: Callable[[str], Visitor]) -> None:
    ann = visit(place.new_operator())
    ann.enrols_a_passkey("This laptop")
    ann.signs_out()
    ann.signs_in()
    ann.signs_out()
    ann.presses("Sign in with a passkey")
    ann.is_at("/admin/")
    ann.opens("/admin/my-sign-in/").reads("This laptop")
    ann.presses("Add a passkey")
    # The sign-in does not prove that it is still she.
    ann.presses("Use a passkey")
    ann.presses("Add the passkey")
    ann.reads("This device already has a passkey of yours.")
    ann.presses("Back")
    ann.presses("Remove This laptop")
    ann.reads("add another one before you remove this one")
    assert ann.complaints() == []


def test_authenticator_app_backup_codes_and_step_up(place: RunningPlatform, visit: Callable[[str], Visitor]) -> None:
    ben = visit(place.new_operator())
    ben.sends_password()
    ben.presses("Set up an app")
    picture = (By.CSS_SELECTOR, "img[alt^='QR code']")
    ben.waits_until(lambda: ben.browser.find_element(*picture).get_attribute("naturalWidth") != "0")
    ben.presses("Cannot scan the code?")
    ben.waits_until(lambda: ben.browser.find_element(By.ID, "totp-secret").text != "")
    secret = ben.browser.find_element(By.ID, "totp-secret").text
    # The previous code is valid only as long as the current one.
    a_step_lasts(8)
    ben.fills("Code from", totp(secret, time.time() - 30))
    ben.presses("Finish")
    ben.reads("The authenticator app is enrolled.")
    codes = re.findall(r"[0-9A-Z]{4}(?:-[0-9A-Z]{4}){3}", ben.page)
    assert len(codes) == 10
    ben.presses("I have saved them")
    ben.is_at("/admin/")
    ben.signs_out()
    ben.sends_password()
    ben.fills("Code from", totp(secret, time.time()))
    ben.presses("Continue")
    ben.is_at("/admin/")
    ben.opens("/admin/reauthenticate/?next=/admin/my-sign-in/")
    ben.fills("Code from", totp(secret, time.time() + 30))
    ben.presses("Continue")
    ben.reads("10 backup codes left")
    assert ben.complaints() == []


def test_the_keyboard_is_enough(place: RunningPlatform, visit: Callable[[str], Visitor]) -> None:
    cleo = visit(place.new_operator()).opens("/admin/")
    for field, keys in (("username", cleo.username + Keys.TAB), ("password", PASSWORD + Keys.ENTER)):
        # The browser sets the focus at the first rendering, which may be after the load event.
        cleo.waits_until(lambda name=field: cleo.browser.switch_to.active_element.get_attribute("name") == name)
        cleo.browser.switch_to.active_element.send_keys(keys)
    cleo.reads("Set up a second factor")


def test_the_own_menu_opens_by_keyboard(place: RunningPlatform, visit: Callable[[str], Visitor]) -> None:
    eve = visit(place.new_operator())
    eve.sits_down_for_the_first_time()
    soon = wait_on(eve.browser).until
    # The page's script marks the menu as closed once it handles the button.
    opener = soon(
        lambda page: page.find_element(By.CSS_SELECTOR, "button[aria-controls=own-links][aria-expanded=false]")
    )
    menu = eve.browser.find_element(By.ID, "own-links")
    opener.send_keys(Keys.ENTER)
    assert soon(lambda _: menu.is_displayed())
    assert opener.get_attribute("aria-expanded") == "true"
    soon(lambda _: menu.find_element(By.LINK_TEXT, "My sign-in")).send_keys(Keys.ESCAPE)
    assert soon(lambda _: not menu.is_displayed())
    assert soon(lambda page: page.switch_to.active_element == opener)


def test_pages_are_accessible_and_fit_a_phone(place: RunningPlatform, visit: Callable[[str], Visitor]) -> None:
    dan = visit(place.new_operator())
    for path in ("/admin/login/", "/admin/forgotten/"):
        dan.opens(path)
        assert (dan.faults(), dan.overflow(360)) == ([], 0)
    dan.browser.set_window_size(1280, 900)
    dan.enrols_a_passkey("Phone")
    dan.signs_out()
    dan.sends_password()
    dan.reads("Second step")
    assert (dan.faults(), dan.overflow(360)) == ([], 0)
    dan.presses("Use a passkey")
    dan.is_at("/admin/")
    for path in ("my-sign-in/", "my-sign-in/passkeys/add/", "my-sign-in/app/", "password_change/", "reauthenticate/"):
        dan.opens(f"/admin/{path}")
        assert (dan.faults(), dan.overflow(360)) == ([], 0)

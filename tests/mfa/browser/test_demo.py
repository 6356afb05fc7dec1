"""A newcomer tries every factor on the demo page, in a real browser."""

import time
from collections.abc import Callable

import pytest
from selenium.webdriver.common.by import By

from tests.mfa.browser.demo import PASSWORD, Demo, totp
from tests.mfa.browser.operator import Operator

pytestmark = [pytest.mark.needs("chromium", "chromedriver"), pytest.mark.timeout(300)]


def test_passkey_on_demo_page(demo: Callable[[], Demo]) -> None:
    page = demo()
    page.register()
    assert page.signed_in_by() == "password"
    page.press("Add a passkey")
    page.confirm_identity()
    page.shows("The passkey is enrolled.")
    page.lists("Passkey")
    page.sign_out()

    page.sign_in()
    page.press("Use the passkey")
    assert page.signed_in_by() == "password and passkey"
    page.sign_out()

    page.press("Sign in with a passkey")
    assert page.signed_in_by() == "passkey"
    page.press("Add a passkey")
    page.press("Use the passkey")
    page.shows("This authenticator has a passkey of yours already.")
    assert page.complaints() == []


def test_authenticator_and_backup_codes_on_demo_page(demo: Callable[[], Demo]) -> None:
    page = demo()
    page.register()
    secret = page.set_up_app()
    page.shows("The authenticator app is enrolled.")
    backup_code, other_code, *_ = page.backup_codes()
    page.lists("Authenticator app", "10 backup codes left")
    page.sign_out()

    page.sign_in()
    # The step of the confirmation is spent, the next one is near enough.
    page.form("second-totp", code=totp(secret, time.time() + 30))
    assert page.signed_in_by() == "password and authenticator app or backup code"
    page.sign_out()

    page.sign_in()
    page.form("second-backup_code", backup_code=backup_code)
    page.signed_in_by()
    page.lists("Authenticator app", "9 backup codes left")
    page.visible("[aria-label='Remove Authenticator app']").click()
    page.form("second-backup_code", backup_code=other_code)
    page.shows("The factor is removed.")
    page.lists()
    assert page.complaints() == []


def test_step_up_before_another_factor(demo: Callable[[], Demo]) -> None:
    page = demo()
    page.register()
    secret = page.set_up_app()
    backup_code, *_ = page.backup_codes()
    page.press("Add a passkey")
    assert page.visible("#second-step-heading").text == "Confirm that it is you"
    # The app is newer than the sign-in.
    page.form("second-backup_code", backup_code=backup_code)
    page.visible("#second-password")
    page.confirm_identity()
    page.form("second-totp", code=totp(secret, time.time() + 30))
    page.shows("The passkey is enrolled.")
    page.lists("Passkey", "Authenticator app", "10 backup codes left")
    assert page.visible("#how").text == "password and authenticator app or backup code"

    page.visible("[aria-label='Remove Passkey']").click()
    page.press("Use the passkey")
    page.visible("#second-password")
    page.form("second-backup_code", backup_code=backup_code)
    page.shows("The factor is removed.")
    page.lists("Authenticator app", "9 backup codes left")
    assert page.complaints() == []


def test_sign_in_that_must_enroll_first(demo: Callable[[], Demo], operator: Operator) -> None:
    page = demo()
    operator.register(page.email, PASSWORD)
    with operator.requires_factors():
        page.sign_in()
        assert "Add a second factor" in page.visible("#enroll-first").text
        page.press("Add a passkey and continue")
        assert page.signed_in_by() == "password and passkey"
        page.lists("Passkey")
        page.sign_out()

        page = demo()
        operator.register(page.email, PASSWORD)
        page.sign_in()
        page.set_up_app(signed_in=False)
        assert page.signed_in_by() == "password and authenticator app or backup code"
    assert page.complaints() == []


def test_enrollment_pass(demo: Callable[[], Demo], operator: Operator) -> None:
    page = demo()
    issued = operator.issue_pass(operator.register(page.email, PASSWORD))
    page.form("use-pass", **{"email": page.email, "pass": issued})
    page.press("Add a passkey and continue")
    page.shows("Sign in with your password and the new factor.")
    page.sign_in()
    page.press("Use the passkey")
    assert page.signed_in_by() == "password and passkey"
    assert page.complaints() == []


def test_phone_on_demo_page(demo: Callable[[], Demo]) -> None:
    page = demo()
    page.register()
    page.form("begin-sms", phone_number=f"+4915112{time.time_ns() % 10**6:06d}")
    page.confirm_identity()
    page.shows("A code is on its way to ***-***-")
    page.form("confirm-sms", code="000000" if page.last_code() != "000000" else "111111")
    page.shows("Invalid verification code")
    page.form("confirm-sms", code=page.last_code())
    page.shows("The phone is enrolled.")
    page.sign_out()

    page.sign_in()
    page.press("Send a code to my phone")
    page.shows("A code is on its way")
    page.form("second-sms", code=page.last_code())
    assert "code by SMS" in page.signed_in_by()
    assert page.complaints() == []


def test_demo_page_shows_wrong_password(demo: Callable[[], Demo]) -> None:
    page = demo()
    page.sign_in()
    page.shows("The username, e-mail address or password is wrong")
    assert page.visible("#sign-in-heading")


def test_every_field_has_a_label_and_every_button_a_name(demo: Callable[[], Demo]) -> None:
    page = demo()
    for box in page.browser.find_elements(By.TAG_NAME, "input"):
        assert box.accessible_name or not box.is_displayed()
    for button in page.browser.find_elements(By.TAG_NAME, "button"):
        assert button.accessible_name or not button.is_displayed()
    for width in (1280, 360):
        page.browser.set_window_size(width, 800)
        overflow = page.browser.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert overflow == 0


def test_inline_scripts_are_blocked(demo: Callable[[], Demo]) -> None:
    page = demo()
    page.browser.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.ran = true'; document.body.append(s)"
    )
    assert page.browser.execute_script("return window.ran") is None

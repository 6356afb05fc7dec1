"""Pages that the journeys do not pass, in Chromium and in each language, and a sign-in by keyboard alone.

Each language has the width and theme that test_browser_journeys.py gives it.
"""

import json
import secrets
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import requests
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import PASSWORD
from tests.machine.conftest import within
from tests.mfa.people import some_phone
from tests.openid.pages.test_browser import Person, register
from tests.openid.pages.test_browser import person as person
from tests.openid.pages.test_browser import shop as shop
from tests.openid.pages.test_browser_journeys import AT_NIGHT, LANGUAGES, Traveller
from tests.openid.pages.test_browser_journeys import traveller as traveller
from userflow.accounts.grant_types import DEVICE_CODE, REFRESH_TOKEN

pytestmark = [pytest.mark.needs("chromium", "chromedriver", "node"), pytest.mark.timeout(300)]
ALL_LANGUAGES: Final = pytest.mark.parametrize(
    "language",
    [pytest.param(name, marks=pytest.mark.nightly if name in AT_NIGHT else ()) for name in LANGUAGES],
)
# The passkeys of a user were created at an address that the tenant no longer has.
MOVE_PASSKEYS: Final = """
from tenants.entering import lookup
from tenants.entering.context import in_tenant
from userflow.accounts.models import EndUser
from mfa.webauthn.models import EndUserPasskey
with in_tenant(lookup.find_by_slug({!r}).tenant_id):
    assert EndUserPasskey.objects.filter(user__email={!r}).update(rp_id="former.example.com")
"""


@pytest.fixture(scope="module")
def television(place: RunningPlatform, shop: dict[str, Any]) -> str:
    """Return the client id of an application on a device."""
    body = {"name": "Television", "type": "public", "grant_types": [DEVICE_CODE, REFRESH_TOKEN]}
    path = f"/clientms/tenants/{shop['tenant_id']}/clients"
    return str(place.call("POST", path, body, token=shop["token"])["client_id"])


@pytest.fixture(scope="module")
def deletion(place: RunningPlatform, shop: dict[str, Any]) -> None:
    """Let the users of the shop delete their accounts."""
    body = {"settings": {"account_deletion": "on"}}
    place.call("PATCH", f"/uflow/admin/tenants/{shop['tenant_id']}/settings", body, token=shop["token"])


def signs_out(person: Traveller) -> None:
    """Sign out; the passkey would sign in again at once if the next page ran its script."""
    person.opens(f"{person.root}/signout")
    person.checks("sign-out")
    person.has_scripts = False
    person.prepare()
    person.clicks("Sign out")
    person.sees("You are signed out.")


def enters_the_password(person: Traveller) -> None:
    """Sign in at the hosted pages, without the passkey that the browser would offer by itself."""
    person.has_scripts = False
    person.prepare()
    person.opens(f"{person.root}/signin")
    person.types("E-mail address", person.email)
    person.types("Password", PASSWORD + Keys.ENTER)
    person.waits_until(lambda: not urlsplit(person.browser.current_url).path.endswith("/signin"))
    person.has_scripts = True
    person.prepare()
    person.browser.refresh()


def adds_a_passkey(person: Traveller) -> None:
    person.opens(f"{person.root}/enroll/passkey?own=1")
    person.sees("Confirm that it is you")
    person.types("Password", PASSWORD)
    person.clicks("Continue")
    person.sees("Create a passkey")
    person.checks("enroll-passkey")
    person.clicks("Create a passkey")
    person.sees("Your passkey is ready.")


def code_to(person: Traveller, phone: str) -> str:
    """Return the newest code that the phone received."""
    path, found = person.place.home / "outbox" / "sms.jsonl", []

    def look() -> bool:
        lines = path.read_text().splitlines() if path.exists() else []
        found.extend(sent["body"][:6] for sent in map(json.loads, lines) if sent["to"] == phone)
        return bool(found)

    assert within(30, look), f"no message to {phone}"
    return found[-1]


def adds_a_phone(person: Traveller) -> str:
    phone = some_phone()
    person.opens(f"{person.root}/enroll/phone?own=1")
    # The passkey is newer than the session, so the password comes first.
    person.checks("step-up-password-first")
    person.types("Password", PASSWORD)
    person.clicks("Continue")
    person.sees("Use your passkey")
    person.clicks("Use your passkey")
    person.sees("Add your mobile number")
    person.checks("enroll-phone")
    person.types("Mobile number", phone)
    person.clicks("Continue")
    person.sees("Code from the text message")
    person.checks("enroll-phone-code")
    person.types("Code from the text message", code_to(person, phone))
    person.clicks("Continue")
    person.sees("Sign-in and security")
    person.checks("account-two-factors")
    return phone


def sees_pages_of_one_factor(person: Traveller) -> None:
    """Look at the pages that rename and remove a passkey, and at the step-up with it."""
    person.clicks("Rename")
    person.sees("Name your passkey")
    person.checks("account-rename")
    person.clicks("Back")
    person.clicks("Remove")
    person.sees("Use your passkey")
    person.checks("step-up-passkey")
    person.clicks("Use your passkey")
    person.sees("Remove this passkey?")
    person.checks("account-remove")


@ALL_LANGUAGES
def test_pages_of_factors(
    traveller: Callable[..., Traveller], place: RunningPlatform, shop: dict[str, Any], deletion: None, language: str
) -> None:
    person = traveller(language=language, look=LANGUAGES[language], email=register(place, shop))
    enters_the_password(person)
    adds_a_passkey(person)
    phone = adds_a_phone(person)
    sees_pages_of_one_factor(person)
    person.opens(f"{person.root}/account/delete")
    person.sees("Delete your account?")
    person.checks("account-delete")
    signs_out(person)
    enters_the_password(person)
    person.sees("Use your passkey")
    person.checks("second-step-passkey")
    person.clicks("Text message")
    person.checks("second-step-message")
    person.clicks("Send the code")
    person.sees("Send another code")
    person.checks("second-step-message-sent")
    place.manage("shell", "--no-imports", "-c", MOVE_PASSKEYS.format(shop["slug"], person.email))
    person.opens(f"{person.root}/signin/verify")
    person.sees("Your passkeys were created at another address of this service and do not work here at the moment.")
    person.checks("passkeys-elsewhere")
    person.types("Code from the text message", code_to(person, phone))
    person.clicks("Continue")
    person.is_at(f"{person.root}/account")
    person.opens(f"{person.root}/account/security")
    person.checks("account-passkey-elsewhere")


@ALL_LANGUAGES
def test_pages_of_devices(
    traveller: Callable[..., Traveller], place: RunningPlatform, shop: dict[str, Any], television: str, language: str
) -> None:
    person = traveller(language=language, look=LANGUAGES[language], email=register(place, shop))
    asked = {"client_id": television, "scope": "openid email offline_access"}
    codes = requests.post(f"{place.url}{person.root}/device_authorization", asked, timeout=60).json()
    person.opens(urlsplit(codes["verification_uri"]).path)
    person.checks("device")
    person.types("Code on your device", "BBBB-BBBB")
    person.clicks("Continue")
    person.sees("This code is not valid. Check it, or get a new one on your device.")
    person.checks("device-error")
    enters_the_password(person)
    person.opens(f"{person.root}/device?user_code={codes['user_code']}")
    person.reads(codes["user_code"])
    person.checks("device-consent")
    person.clicks("Cancel" if language in ("de", "es") else "Allow")
    person.waits_until(lambda: "decided=" in person.browser.current_url)
    person.checks("device-decided")


@pytest.mark.parametrize("language", ["de"])
def test_mail_link_of_another_user(
    traveller: Callable[..., Traveller], place: RunningPlatform, shop: dict[str, Any], language: str
) -> None:
    other = traveller(language=language, look=LANGUAGES[language], email=register(place, shop))
    link = other.link("verify-email")
    person = traveller(language=language, look=LANGUAGES[language], email=register(place, shop))
    enters_the_password(person)
    person.opens(link.removeprefix(person.url))
    person.clicks("Verify")
    person.sees(
        "You are signed in as %(signed_in)s. The link is for another address: sign out, then open it again.",
        signed_in=person.email,
    )
    person.checks("other-user")


# --- keyboard --------------------------------------------------------------------------------------------------------

# What Tab must reach, in this order.
REACHABLE = """
return [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary')]
  .filter((one) => one.checkVisibility() && !one.disabled && one.tabIndex >= 0).map((one) => one.outerHTML);
"""
TO_THE_TOP = """
document.body.tabIndex = -1;
document.body.focus();
document.body.removeAttribute('tabindex');
"""
FOCUSED = """
const one = document.activeElement, style = getComputedStyle(one);
return [one.outerHTML, one.textContent.trim(), style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 1];
"""


def press(person: Person, keys: str) -> None:
    ActionChains(person.browser).send_keys(keys).perform()


def types(person: Person, keys: str) -> None:
    """Type into the field that the page has focused, which happens after its text can be read."""
    person.waits_until(lambda: person.browser.switch_to.active_element.tag_name == "input")
    press(person, keys)


def tabs_through(person: Person) -> None:
    """Press Tab from the top of the page; check that the focus is seen and reaches everything in the order of the page."""
    person.browser.execute_script(TO_THE_TOP)
    expected, seen = person.browser.execute_script(REACHABLE), []
    for _ in expected:
        press(person, Keys.TAB)
        element, _text, is_marked = person.browser.execute_script(FOCUSED)
        assert is_marked, f"the focus of {element} is not seen"
        seen.append(element)
    assert seen == expected


def presses_by_keyboard(person: Person, text: str) -> None:
    """Press Tab until the focus is on the button or link with this text, then Enter."""
    for _ in range(20):
        press(person, Keys.TAB)
        if person.browser.execute_script(FOCUSED)[1] == text:
            press(person, Keys.ENTER)
            return
    raise AssertionError(f"Tab does not reach {text!r}")


def test_sign_in_and_consent_by_keyboard(place: RunningPlatform, shop: dict[str, Any], person: Person) -> None:
    email = register(place, shop)
    person.begins()
    person.reads("to continue to Book shop")
    tabs_through(person)
    person.begins()
    types(person, email + Keys.TAB + "wrong" + Keys.ENTER)
    person.reads("incorrect")
    types(person, PASSWORD)
    presses_by_keyboard(person, "Sign in")
    person.reads("Allow Book shop to use your account?")
    tabs_through(person)
    presses_by_keyboard(person, "Cancel")
    person.waits_until(lambda: "error=access_denied" in person.browser.current_url)
    person.begins(state=secrets.token_hex(4))
    person.reads("Allow Book shop to use your account?")
    presses_by_keyboard(person, "Allow")
    person.is_back()

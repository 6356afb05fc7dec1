"""The page for codes of devices in Chromium: what the user compares, on narrow and wide screens, light and dark."""

from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import PASSWORD
from tests.openid.pages.test_browser import Person, register
from tests.openid.pages.test_browser import person as person
from tests.openid.pages.test_browser import shop as shop
from userflow.accounts.grant_types import DEVICE_CODE, REFRESH_TOKEN

pytestmark = [pytest.mark.needs("chromium", "chromedriver", "node"), pytest.mark.timeout(300)]


def test_user_signs_a_television_in(place: RunningPlatform, shop: dict[str, Any], person: Person) -> None:
    body = {"name": "Television", "type": "public", "grant_types": [DEVICE_CODE, REFRESH_TOKEN]}
    made = place.call("POST", f"/clientms/tenants/{shop['tenant_id']}/clients", body, token=shop["token"])
    asked = {"client_id": made["client_id"], "scope": "openid email offline_access"}
    codes = requests.post(f"{place.url}{person.root}/device_authorization", asked, timeout=60).json()
    person.opens(urlsplit(codes["verification_uri"]).path)
    person.reads("Sign in on another device")
    person.looks("device")
    person.fills("Code on your device", "BBBB-BBBB")
    person.presses("Continue")
    person.reads("This code is not valid.")
    person.looks("device-error")
    person.fills("Code on your device", codes["user_code"].lower())
    person.presses("Continue")
    person.reads("to continue to Television")
    person.fills("E-mail address", register(place, shop))
    person.fills("Password", PASSWORD)
    person.presses("Sign in")
    person.reads("Sign in to Television on another device?")
    person.reads(codes["user_code"])
    person.looks("device-consent")
    person.presses("Allow")
    person.reads("Your device is signed in")
    person.looks("device-approved")
    poll = {"client_id": made["client_id"], "grant_type": DEVICE_CODE, "device_code": codes["device_code"]}
    assert "refresh_token" in requests.post(f"{place.url}{person.root}/token", poll, timeout=60).json()
    person.opens(f"{person.root}/account/devices")
    person.reads("Television")
    person.looks("device-in-list")

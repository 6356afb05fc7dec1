"""response_mode=form_post in Chromium: the response reaches the application, with scripts and without."""

from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import PASSWORD
from tests.openid.pages.test_browser import Person, register
from tests.openid.pages.test_browser import person as person
from tests.openid.pages.test_browser import shop as shop
from tests.receiver import Receiver

pytestmark = [pytest.mark.needs("chromium", "chromedriver", "node"), pytest.mark.timeout(300)]


class Callback(Receiver):
    """The redirect URI of an application on another origin."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.responses: list[dict[str, list[str]]] = []
        self.response_body = b"Signed in at the shop."

    def decide(self, body: bytes) -> tuple[int, dict[str, str]]:
        return 200, {"Content-Type": "text/plain"}

    def keep(self, body: bytes, headers: dict[str, str], status: int) -> None:
        assert headers["content-type"] == "application/x-www-form-urlencoded"
        self.responses.append(parse_qs(body.decode(), strict_parsing=True))


def test_response_is_posted_to_the_application(place: RunningPlatform, shop: dict[str, Any], person: Person) -> None:
    callback = Callback()
    body = {"name": "Book shop", "type": "public", "redirect_uris": [callback.url]}
    path = f"/clientms/tenants/{shop['tenant_id']}/clients"
    client_id = place.call("POST", path, body, token=shop["token"])["client_id"]
    asked = {"client_id": client_id, "redirect_uri": callback.url, "response_mode": "form_post"}
    person.begins(**asked)
    person.fills("E-mail address", register(place, shop))
    person.fills("Password", PASSWORD)
    person.presses("Sign in")
    person.presses("Allow")
    person.reads("Signed in at the shop.")
    assert callback.responses[0].keys() == {"code", "state", "iss"}

    command = person.browser.execute_cdp_cmd  # type: ignore[attr-defined]  # Chromium's driver has it
    command("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        person.begins(**asked)
        person.reads("If nothing happens, choose Continue.")
        person.presses("Continue")
        person.reads("Signed in at the shop.")
    finally:
        command("Emulation.setScriptExecutionDisabled", {"value": False})
    assert callback.responses[1].keys() == {"code", "state", "iss"}

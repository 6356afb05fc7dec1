"""Back, bookmarks, lost cookies and ended sessions at every hosted page in Chromium, and the language switch."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from openid.pages.urls import urlpatterns
from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import PASSWORD
from tests.openid.pages.test_browser import Person, register
from tests.openid.pages.test_browser import person as person
from tests.openid.pages.test_browser import shop as shop

pytestmark = [pytest.mark.needs("chromium", "chromedriver", "node"), pytest.mark.timeout(300)]
# What is no page: a picture, data of scripts and a file.
NO_PAGES: Final = {"logo", "passkey-options", "enroll/passkey-options", "account/data"}
PATHS: Final = [
    *(
        path
        for pattern in urlpatterns
        if (path := str(pattern.pattern).replace("<uuid:factor_id>", str(uuid4()))) not in NO_PAGES
    ),
    "logout",
    "no/such/page",
]
# Functions of the two scripts below: what a response is, and the forms of a page with all that they send.
_READ = """
const page = async (response) => {
  const type = response.headers.get('Content-Type') ?? '';
  const text = await response.text();
  const read = new DOMParser().parseFromString(text, 'text/html');
  const ways = read.querySelectorAll('main a[href], main button, nav.bar a[href]').length;
  const leads = type.startsWith('text/html') && ways > 0 && response.status < 500;
  return {leads, read, url: response.url, status: response.status};
};
"""
# Which of these addresses lead nowhere, and the forms of the others.
OPEN_EACH = f"""
const [paths, done] = arguments;
{_READ}
(async () => {{
  const dead = [], forms = [];
  for (const path of paths) {{
    const shown = await page(await fetch(path, {{headers: {{Accept: 'text/html'}}}}));
    if (!shown.leads) dead.push([path, shown.status]);
    for (const form of shown.read.querySelectorAll('form[method=post]')) {{
      const fields = [...new FormData(form)];
      const button = form.querySelector('button[name]');
      if (button) fields.push([button.name, button.value]);
      forms.push([form.getAttribute('action') ?? shown.url, fields]);
    }}
  }}
  done([dead, forms]);
}})();
"""
# Which of these forms lead nowhere, sent with or without the browser's cookies.
SEND_EACH = f"""
const [forms, credentials, done] = arguments;
{_READ}
(async () => {{
  const dead = [];
  for (const [action, fields] of forms) {{
    const body = new URLSearchParams(fields);
    const shown = await page(await fetch(action, {{method: 'POST', body, credentials}}));
    if (!shown.leads) dead.push([action, shown.status]);
  }}
  done(dead);
}})();
"""
END_SESSIONS: Final = """
from django.utils.timezone import now
from tenants.entering import lookup
from tenants.entering.context import in_tenant
from userflow.accounts.session_models import EndUserSession
with in_tenant(lookup.find_by_slug({!r}).tenant_id):
    assert EndUserSession._default_manager.filter(user__email={!r}, ended_at=None).update(ended_at=now())
"""


def open_each(person: Person, query: str = "") -> list[Any]:
    """Open every page, and check that each leads on; return their forms."""
    dead, forms = person.browser.execute_async_script(OPEN_EACH, [f"{person.root}/{path}{query}" for path in PATHS])
    assert dead == []
    return list(forms)


def signs_in(person: Person, email: str) -> None:
    person.opens(f"{person.root}/signin")
    person.fills("E-mail address", email + Keys.ENTER)
    person.fills("Password", PASSWORD + Keys.ENTER)
    person.is_at(f"{person.root}/account")


def test_every_page_leads_on(place: RunningPlatform, shop: dict[str, Any], person: Person) -> None:
    """As a bookmark, with a finished request, without cookies, and after the session has ended."""
    email = register(place, shop)
    person.opens(f"{person.root}/signin")
    forms = open_each(person)
    assert len(forms) > 8
    assert person.browser.execute_async_script(SEND_EACH, forms, "omit") == []
    person.begins()
    query = "?" + urlsplit(person.browser.current_url).query
    person.fills("E-mail address", email + Keys.ENTER)
    person.fills("Password", PASSWORD + Keys.ENTER)
    person.presses("Cancel")
    person.waits_until(lambda: "error=access_denied" in person.browser.current_url)
    person.opens(f"{person.root}/account")
    person.reads(email)
    open_each(person, query)
    forms = open_each(person)
    assert len(forms) > 4
    assert person.browser.execute_async_script(SEND_EACH, forms, "omit") == []
    place.manage("shell", "--no-imports", "-c", END_SESSIONS.format(shop["slug"], email))
    assert person.browser.execute_async_script(SEND_EACH, forms, "same-origin") == []
    open_each(person)
    open_each(person, query)


def test_back_leads_on(place: RunningPlatform, shop: dict[str, Any], person: Person) -> None:
    """From the application back to pages of the sign-in, and on from there; and back after signing out."""
    email = register(place, shop)
    person.begins()
    person.fills("E-mail address", email + Keys.ENTER)
    person.fills("Password", PASSWORD + Keys.ENTER)
    person.presses("Allow")
    person.is_back()
    person.browser.back()
    assert urlsplit(person.browser.current_url).path.startswith(person.root)
    # The browser may show the page from its memory.
    person.browser.refresh()
    person.reads("This sign-in has expired or is already finished.")
    person.presses("Your account")
    person.reads(email)
    # The page before the consent is the application's request, which needs no page any more.
    person.browser.back()
    person.browser.back()
    person.browser.refresh()
    person.is_back()
    person.opens(f"{person.root}/signout")
    person.presses("Sign out")
    person.reads("You are signed out.")
    person.browser.back()
    person.browser.refresh()
    # The page of the account is not shown again to the next user of the browser.
    person.is_at(f"{person.root}/signin")


def test_language_and_times_are_the_users(place: RunningPlatform, shop: dict[str, Any], person: Person) -> None:
    """The link of a mail keeps its token in another language; times are in the zone of the browser."""
    command: Callable[..., Any] = person.browser.execute_cdp_cmd  # type: ignore[attr-defined]  # Chromium's driver has it
    person.opens(f"{person.root}/reset#token=of-the-mail")
    person.presses("Deutsch")
    person.waits_until(lambda: bool(person.browser.execute_script("return document.documentElement.lang === 'de'")))
    assert person.browser.find_element(By.NAME, "token").get_attribute("value") == "of-the-mail"
    assert "of-the-mail" not in person.browser.current_url
    person.presses("English")
    signs_in(person, register(place, shop))
    command("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kathmandu"})
    try:
        person.opens(f"{person.root}/account/devices")
        person.reads("last used")
        local, moment = person.browser.execute_script(
            "const time = document.querySelector('time');"
            "const parts = {timeZone: 'Asia/Kathmandu', dateStyle: 'long', timeStyle: 'short'};"
            "return [time.textContent, new Intl.DateTimeFormat(navigator.language, parts).format(new Date(time.dateTime))];"
        )
        assert local == moment
        assert "UTC" not in local
    finally:
        command("Emulation.setTimezoneOverride", {"timezoneId": ""})

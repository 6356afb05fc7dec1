"""Whole journeys at the hosted pages in Chromium: in each language, and without scripts.

Each language has one pair of width and theme: English laptop light, German phone dark, French laptop dark, Spanish phone light.
test_browser.py looks at its pages in all four pairs, in English.
"""

import email as emails
import email.policy
import re
import secrets
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.catalogues import compiled_entries
from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import FAULTS, PASSWORD
from tests.machine.conftest import within
from tests.mfa.browser.demo import totp
from tests.openid.node_client import PACKAGES, install_packages
from tests.openid.pages.test_browser import PICTURES, SIZES, VIOLATIONS, Person
from tests.openid.pages.test_browser import shop as shop
from tests.openid.pages.test_languages import catalog

pytestmark = [pytest.mark.needs("chromium", "chromedriver", "node"), pytest.mark.timeout(300)]
LANGUAGES: Final = {
    "en": ("laptop", "light"),
    "de": ("phone", "dark"),
    "fr": ("laptop", "dark"),
    "es": ("phone", "light"),
}
# The same pages, in languages that are tried every night only.
AT_NIGHT: Final = ("fr", "es")
NEW: Final = "another horse 8 battery"
NAME: Final = "Nora Newcomer"
# Texts, labels and titles that the page shows. Codes, keys and addresses are no prose.
TEXTS = """
const found = [document.title.split(' · ')[0]];
// A time stands within a text.
for (const time of document.querySelectorAll('time')) time.replaceWith(time.textContent);
document.body.normalize();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const holder = walker.currentNode.parentElement;
  if (!holder.closest('script, style, noscript, code, .brand, .mark, a[lang], [aria-current=true]') && holder.checkVisibility())
    found.push(walker.currentNode.textContent);
}
for (const name of ['aria-label', 'placeholder', 'title', 'alt'])
  for (const one of document.querySelectorAll(`[${name}]`)) if (one.checkVisibility()) found.push(one.getAttribute(name));
return found.map((text) => text.replace(/\\s+/g, ' ').trim()).filter((text) => /\\p{L}/u.test(text));
"""


@cache
def entries(language: str) -> dict[str, str]:
    """Return the texts of the pages in this language, by those in English; plural forms are texts of their own."""
    found: dict[str, str] = {}
    for source, translated in compiled_entries(catalog("openid", "de" if language == "en" else language)).items():
        singular, *plural = source.split("\0")
        forms = [singular, *plural] if language == "en" else translated.split("\0")
        found |= {singular: forms[0]} | ({plural[0]: forms[-1]} if plural else {})
    return found


@cache
def patterns(language: str) -> list[re.Pattern[str]]:
    """Return the texts as patterns: a placeholder stands for anything."""
    texts = (" ".join(text.split()).strip(" ·:") for text in entries(language).values() if text)
    return [re.compile(re.sub(r"%(?:\\\([a-z_]+\\\))?s", ".+", re.escape(text))) for text in texts]


class Traveller(Person):
    """A person with a language, a width and a theme."""

    place: RunningPlatform
    language = "en"
    has_scripts = True
    look = ("laptop", "light")
    email = ""

    def command(self, name: str, **parameters: Any) -> None:
        run: Callable[..., Any] = self.browser.execute_cdp_cmd  # type: ignore[attr-defined]  # Chromium's driver has it
        run(name, parameters)

    def prepare(self) -> None:
        """Set the browser's language, width and theme, and whether it runs scripts."""
        width, height = SIZES[self.look[0]]
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        theme = {"name": "prefers-color-scheme", "value": self.look[1]}
        self.command("Emulation.setEmulatedMedia", features=[theme])
        self.command("Network.enable")
        self.command("Network.setExtraHTTPHeaders", headers={"Accept-Language": self.language})
        self.command("Emulation.setScriptExecutionDisabled", value=not self.has_scripts)

    def say(self, text: str) -> str:
        """Return a text of the pages in the person's language."""
        return entries(self.language)[text]

    def types(self, label: str, text: str) -> None:
        self.fills(self.say(label), text)

    def clicks(self, text: str) -> None:
        self.presses(self.say(text))

    def sees(self, text: str, **values: str) -> None:
        self.reads(self.say(text) % values)

    def checks(self, name: str) -> None:
        """Check the page for faults, for its width, and for texts in another language."""
        # Of a page that was loaded without scripts none runs now; axe needs them.
        self.command("Emulation.setScriptExecutionDisabled", value=False)
        run = self.browser.execute_script
        assert run(FAULTS) == [], name
        run((PACKAGES / "axe-core" / "axe.min.js").read_text())
        assert self.browser.execute_async_script(VIOLATIONS) == [], name
        assert run("return document.documentElement.lang") == self.language, name
        wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert run(wide) <= 0, f"{name} is too wide in {self.language}"
        assert self.untranslated(run(TEXTS)) == [], name
        self.command("Emulation.setScriptExecutionDisabled", value=not self.has_scripts)
        if PICTURES:
            Path(PICTURES).mkdir(parents=True, exist_ok=True)
            scripts = "" if self.has_scripts else "-no-scripts"
            self.browser.save_screenshot(f"{PICTURES}/{name}-{self.language}{scripts}.png")

    def untranslated(self, texts: list[str]) -> list[str]:
        """Return the texts that are neither of the catalogue nor data of the user, the tenant or the application."""
        data = {self.email, NAME, "Book shop", "Television", "Maple Street Books", ""}
        own = [part.strip(" ·•:") for text in texts for part in text.split(" · ")]
        return [
            text
            for text in own
            if text not in data
            and not re.fullmatch(r"[\w.+-]+@example\.com|[0-9.]+|[A-Z]{4}-[A-Z]{4}|[*]{3}-[*]{3}-[0-9]{4}", text)
            and not any(pattern.fullmatch(text) for pattern in patterns(self.language))
        ]

    def mail(self, about: str) -> str:
        """Return the text of the newest mail to the person that contains a word."""
        found: list[str] = []

        def look() -> bool:
            for path in sorted((self.place.home / "outbox" / "mail").glob("*"), key=lambda one: one.stat().st_mtime_ns):
                sent = emails.message_from_bytes(path.read_bytes(), policy=email.policy.default)
                body = sent.get_body(("plain",))
                text = body.get_content() if body is not None else ""
                if str(sent["To"]) == self.email and about in text:
                    found.append(text)
            return bool(found)

        assert within(30, look), f"no mail about {about} to {self.email}"
        return found[-1]

    def link(self, page: str) -> str:
        """Return the link of the newest mail that leads to a page."""
        (link,) = re.findall(rf"\S+{re.escape(self.root)}/{page}#\S+", self.mail(f"{self.root}/{page}#"))
        return str(link)


@pytest.fixture
def traveller(
    browser: webdriver.Chrome, place: RunningPlatform, shop: dict[str, Any]
) -> Iterator[Callable[..., Traveller]]:
    """Return a function that sends a person with these attributes on the way."""
    browser.implicitly_wait(10)
    install_packages()

    def start(**attributes: Any) -> Traveller:
        made = Traveller(browser, place.url, "")
        made.shop, made.place = shop, place
        made.email = f"nora-{secrets.token_hex(3)}@example.com"
        for name, value in attributes.items():
            setattr(made, name, value)
        made.prepare()
        return made

    yield start
    start(look=("laptop", "light"))


def registers(person: Traveller) -> None:
    """Create an account on the way from the application, and consent."""
    person.begins()
    person.sees("to continue to %(application)s", application="Book shop")
    person.checks("sign-in")
    person.clicks("Create an account")
    person.types("Your name", NAME)
    person.types("E-mail address", person.email)
    person.types("Password", "password1234")
    person.clicks("Create account")
    person.browser.find_element(By.CLASS_NAME, "error")
    person.checks("register-error")
    person.types("Password", PASSWORD)
    person.clicks("Create account")
    person.sees("Allow %(application)s to use your account?", application="Book shop")
    person.checks("consent")
    person.clicks("Allow")
    person.is_back()


def adds_an_app(person: Traveller) -> str:
    """Add an authenticator app; return its secret."""
    person.opens(f"{person.root}/enroll?own=1")
    # Not right after the registration, whose ticket the browser has.
    if person.say("Confirm that it is you") in person.browser.find_element(By.TAG_NAME, "main").text:
        person.types("Password", PASSWORD)
        person.clicks("Continue")
    person.sees("Protect your account")
    person.checks("enroll")
    app = f"//button[contains(., '{person.say('Authenticator app')}')]"
    person.browser.find_element(By.XPATH, app).click()
    person.clicks("Cannot scan the code?")
    person.checks("enroll-app")
    secret = person.browser.find_element(By.TAG_NAME, "code").text.replace(" ", "")
    person.types("Six digits that the app shows", totp(secret, time.time()))
    person.clicks("Continue")
    person.sees("I have saved them")
    person.checks("backup-codes")
    person.clicks("I have saved them")
    person.sees("Sign-in and security")
    person.checks("account-security")
    return secret


def signs_out(person: Traveller) -> None:
    person.opens(f"{person.root}/logout")
    person.sees("Sign out?")
    person.checks("logout")
    person.clicks("Sign out")
    person.sees("You are signed out.")


def resets_the_password(person: Traveller) -> None:
    """Ask for the mail and use it; without scripts the link is copied into the field."""
    person.opens(f"{person.root}/forgot")
    person.types("E-mail address", person.email)
    person.checks("forgot")
    person.clicks("Send the link")
    person.sees("Check your mail")
    person.checks("forgot-sent")
    link = person.link("reset")
    person.opens(link.removeprefix(person.url))
    if not person.has_scripts:
        person.types("Link from the mail", link)
    person.checks("reset")
    person.types("New password", NEW)
    person.clicks("Save the password")
    person.sees("Your new password is saved. Sign in with it.")


def signs_in(person: Traveller, secret: str) -> None:
    """Sign in with the new password and a code of the app."""
    person.opens(f"{person.root}/signin")
    person.types("E-mail address", person.email)
    person.types("Password", "wrong")
    person.clicks("Sign in")
    person.sees("The e-mail address or password is incorrect. Check both and try again.")
    person.checks("password-error")
    person.types("Password", NEW)
    person.clicks("Sign in")
    person.sees("Confirm that it is you")
    person.checks("second-step")
    # The code of this moment was used when the app was added.
    person.types("Code from your authenticator app", totp(secret, time.time() + 30))
    person.clicks("Continue")
    person.is_at(f"{person.root}/account")


def changes_the_account(person: Traveller) -> None:
    """Verify the address, change the name, look at every page of the account."""
    person.types("Name", "Nora Newman")
    person.clicks("Save")
    person.sees("Your changes are saved.")
    person.types("Name", NAME)
    person.clicks("Save")
    person.sees("Your changes are saved.")
    person.checks("account")
    for page in ("devices", "applications", "security"):
        person.opens(f"{person.root}/account/{page}")
        person.checks(f"account-{page}")


def looks_at_protected_pages(person: Traveller) -> None:
    """Look at the pages that ask for the password first."""
    person.opens(f"{person.root}/account/email")
    person.sees("Confirm that it is you")
    person.checks("step-up")
    person.types("Password", PASSWORD)
    person.clicks("Continue")
    # To open a page at once would cancel the form that is being sent.
    person.is_at(f"{person.root}/account/email")
    for page, title in (("email", "Change your e-mail address"), ("password", "Change your password")):
        person.opens(f"{person.root}/account/{page}")
        person.sees(title)
        person.checks(f"account-{page}")


def verifies_the_address(person: Traveller) -> None:
    """Open the link of the mail; without scripts the code is copied."""
    link = person.link("verify-email")
    person.opens(link.removeprefix(person.url))
    if not person.has_scripts:
        (code,) = re.findall(r"(?<![\w.-])[0-9]{6}(?![\w.-]*\w)", person.mail(f"{person.root}/verify-email#"))
        person.types("Code from the mail", code)
    person.checks("verify-email")
    person.clicks("Verify")
    person.sees("Your e-mail address is verified.")


def accepts_an_invitation(person: Traveller) -> None:
    """Create the account of another address with the link of a mail."""
    person.email = f"ivy-{secrets.token_hex(3)}@example.com"
    body = {"email": person.email, "kind": "end_user"}
    person.place.call("POST", "/uflow/admin/invitations", body, token=person.shop["token"])
    link = person.link("invitation")
    person.opens(link.removeprefix(person.url))
    if not person.has_scripts:
        person.types("Link from the mail", link)
    person.checks("invitation")
    person.types("Password", PASSWORD)
    person.clicks("Create account")
    person.sees("Your profile")


def sees_other_pages(person: Traveller) -> None:
    """Look at pages that no way of this person leads to."""
    person.begins(prompt="select_account")
    person.sees("Choose an account")
    person.checks("select-account")
    person.opens(f"{person.root}/signin?request=unknown")
    person.sees("That did not work")
    person.checks("error")


@pytest.mark.parametrize(
    ("language", "scripts"),
    [
        ("en", True),
        ("en", False),
        ("de", True),
        *(pytest.param(language, True, marks=pytest.mark.nightly) for language in AT_NIGHT),
    ],
)
def test_journey(traveller: Callable[..., Traveller], language: str, scripts: bool) -> None:
    look = LANGUAGES[language] if scripts else ("phone", "dark")
    person = traveller(language=language, look=look, has_scripts=scripts)
    registers(person)
    verifies_the_address(person)
    looks_at_protected_pages(person)
    secret = adds_an_app(person)
    signs_out(person)
    resets_the_password(person)
    signs_in(person, secret)
    changes_the_account(person)
    sees_other_pages(person)
    signs_out(person)
    accepts_an_invitation(person)

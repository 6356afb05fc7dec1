"""The examples that bin/example starts, used in Chromium; they share the platform that the first of them starts."""

import re
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.console.browser.visitor import FAULTS, PASSWORD, Visitor
from tests.machine.conftest import ROOT, environment, free_port, prepared_home, within

pytestmark = [pytest.mark.needs("chromium", "chromedriver"), pytest.mark.timeout(300)]
# Sends the form for an invitation where the page has none.
FORGED = """
const form = document.createElement("form");
Object.assign(form, {method: "post", action: arguments[0], innerHTML: '<input name="email" value="x@example.com">'});
document.body.append(form);
form.submit();
"""


@dataclass(frozen=True)
class Machine:
    """A machine on which the examples run."""

    home: Path
    port: int

    @contextmanager
    def runs(self, example: str) -> Iterator[str]:
        """Start an example by its command; yield its address."""
        log, port = self.home / f"{example}.log", free_port()
        variables = {"PORT": str(self.port), "EXAMPLE_PORT": str(port), "WEB_WORKERS": "1", "RECHECK_SECONDS": "0"}
        with log.open("w") as lines:
            process = subprocess.Popen(
                [str(ROOT / "bin" / "example"), example],
                env=environment(self.home, **variables),
                stdout=lines,
                stderr=subprocess.STDOUT,
            )
        address = f"http://127.0.0.1:{port}"
        said = f"The example {example} is at {address}/ "
        assert within(180, lambda: said in log.read_text() or process.poll() is not None), log.read_text()
        assert process.poll() is None, log.read_text()
        yield address
        process.terminate()
        assert process.wait(60) == 0, log.read_text()

    def link(self, email: str) -> str:
        """Return the link of the mail to an address."""
        mails = self.home / "outbox" / "mail"

        def found() -> list[str]:
            texts = [mail.read_text() for mail in mails.glob("*") if not mail.name.startswith(".")]
            return [text for text in texts if f"To: {email}\n" in text]

        assert within(30, lambda: bool(found()))
        (link,) = re.findall(r"^http\S+#token=\S+$", found()[0], re.MULTILINE)
        return str(link)


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[Machine, str]]:
    """The example that starts the platform, for as long as the others use it."""
    with prepared_home() as home, ExitStack() as running:
        machine = Machine(home, free_port())
        yield machine, running.enter_context(machine.runs("b2b-saas"))


@dataclass
class Person(Visitor):
    """A person with a browser, who has an address."""

    machine: Machine

    def accepts_invitation(self, name: str) -> None:
        self.browser.get(self.machine.link(self.username))
        self.fills("Your name", name)
        self.fills("Password", PASSWORD)
        self.presses("Create account")
        self.reads("Your profile")

    def signs_in_at_the_tenant(self, slug: str) -> None:
        """Choose the company, then sign in at the hosted page of its tenant."""
        self.opens("/")
        self.fills("Your company's short name", slug)
        self.presses("Continue")
        self.waits_until(lambda: f"/t/{slug}/authorize" in self.browser.current_url)
        self.fills("E-mail address", self.username)
        self.fills("Password", PASSWORD)
        self.presses("Sign in")

    def signs_out_at_the_tenant(self, slug: str) -> None:
        self.browser.get(f"http://localhost:{self.machine.port}/t/{slug}/signout")
        self.presses("Sign out")
        self.waits_until(lambda: self.browser.current_url.endswith(f"/t/{slug}/signin"))

    def looks(self) -> None:
        assert self.browser.execute_script(FAULTS) == []


def address_of(name: str) -> str:
    return f"{name}-{secrets.token_hex(4)}@example.com"


def sign_up(person: Person, company: str, slug: str) -> None:
    person.opens("/")
    person.looks()
    fill_in(person, company, slug, person.username)
    person.reads("Check your mail")
    person.accepts_invitation(f"Founder of {company}")


def fill_in(person: Person, company: str, slug: str, email: str) -> None:
    person.fills("Company name", company)
    person.fills("Short name", slug)
    person.fills("Your e-mail address", email)
    person.presses("Sign up")


def test_two_companies_sign_up_invite_and_see_their_own_data(
    started: tuple[Machine, str], browser: webdriver.Chrome
) -> None:
    machine, address = started
    browser.implicitly_wait(10)
    maple, cedar = (f"{name}-{secrets.token_hex(3)}" for name in ("maple", "cedar"))
    ann, bob, cleo = (Person(browser, address, address_of(name), machine) for name in ("ann", "bob", "cleo"))

    # Ann's company: the session of her browser at the tenant signs her in.
    sign_up(ann, "Maple Books", maple)
    ann.opens(f"/c/{maple}")
    ann.reads("Founder of Maple Books (admin)")
    ann.fills("Title", "New shelves <b>now</b>")
    ann.presses("Add project")
    ann.reads("New shelves <b>now</b>")
    project = browser.current_url.removeprefix(address)
    ann.opens(f"/c/{maple}")
    ann.looks()
    ann.fills("E-mail address of your colleague", bob.username)
    ann.presses("Send invitation")
    ann.reads(f"An invitation is on its way to {bob.username}.")
    ann.fills("E-mail address of your colleague", bob.username)
    ann.presses("Send invitation")
    ann.reads("This address has a pending invitation.")
    cookie = browser.get_cookie("planboard_session")
    assert cookie
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")

    # Sign-out ends the session here and at the platform, and the cookie of before is worth nothing.
    ann.presses("Sign out")
    ann.reads("Plan your work together")
    left = requests.get(
        f"{address}{project}", cookies={"planboard_session": cookie["value"]}, allow_redirects=False, timeout=30
    )
    assert (left.status_code, left.headers["Location"]) == (303, f"/c/{maple}/sign-in")

    # Her colleague accepts, signs in at the hosted page, and sees her project, but cannot invite.
    bob.accepts_invitation("Bob Colleague")
    bob.signs_out_at_the_tenant(maple)
    bob.signs_in_at_the_tenant(maple)
    bob.reads("Bob Colleague")
    bob.presses("New shelves <b>now</b>")
    bob.reads("Added by Founder of Maple Books")
    bob.opens(f"/c/{maple}")
    assert "Invite a colleague" not in bob.page
    assert cross_site(address, browser, f"/c/{maple}/projects") == 403
    browser.execute_script(FORGED, f"/c/{maple}/invitations")
    bob.reads("Only admins of the company can invite colleagues")
    # The application learns of a session that has ended at the platform.
    bob.signs_out_at_the_tenant(maple)
    bob.opens(f"/c/{maple}")
    bob.waits_until(lambda: f"/t/{maple}/authorize" in browser.current_url)

    # Another company sees nothing of this, nor can its founder open the first one.
    sign_up(cleo, "Cedar Tools", cedar)
    cleo.opens(f"/c/{cedar}")
    cleo.reads("Founder of Cedar Tools (admin)")
    cleo.reads("No projects yet.")
    cleo.opens(project.replace(maple, cedar))
    cleo.reads("There is no such project")
    cleo.opens(project)
    cleo.waits_until(lambda: f"/t/{maple}/authorize" in browser.current_url)
    assert (machine.home / "examples" / "b2b-saas.sqlite3").stat().st_mode & 0o077 == 0
    assert "code=" not in (machine.home / "b2b-saas.log").read_text()


def cross_site(address: str, browser: webdriver.Chrome, path: str) -> int:
    """Send a form with the cookie of the browser from a page of another site; return the status."""
    cookies = {cookie["name"]: cookie["value"] for cookie in browser.get_cookies()}
    headers = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    response = requests.post(
        f"{address}{path}", data={"title": "x"}, cookies=cookies, headers=headers, allow_redirects=False, timeout=30
    )
    return response.status_code


def test_failed_sign_up_leaves_the_short_name_free(started: tuple[Machine, str], browser: webdriver.Chrome) -> None:
    machine, address = started
    browser.implicitly_wait(10)
    dora, slug = Person(browser, address, address_of("dora"), machine), f"oak-{secrets.token_hex(3)}"
    dora.opens("/")
    # The platform rejects the address when the tenant has been made.
    fill_in(dora, "Oak Tables", slug, "dora@tables")
    dora.reads("Send an e-mail address such as name@example.com")
    fill_in(dora, "Oak Tables", slug, dora.username)
    dora.reads("Check your mail")
    dora.opens("/")
    fill_in(dora, "Oak Tables", slug, dora.username)
    dora.reads("This short name is taken.")


def test_protected_api_responds_by_token(started: tuple[Machine, str], browser: webdriver.Chrome) -> None:
    machine, _ = started
    browser.implicitly_wait(10)
    with machine.runs("protected-api") as address:
        caller = Visitor(browser, address, "")
        caller.opens("/")
        assert browser.execute_script(FAULTS) == []
        for token, response in (
            (None, "401"),
            ("orders-write", "403"),
            ("orders-read", '200 {"orders_of":'),
        ):
            caller.opens("/")
            if token:
                caller.fills("Access token", (machine.home / "examples" / f"{token}.token").read_text())
            caller.presses("Call")
            caller.reads(response)
        # An interactive zsh takes a comment for arguments.
        calls = re.findall(r"^ *(curl .*)", (machine.home / "protected-api.log").read_text(), re.MULTILINE)
        assert (len(calls), [call for call in calls if "#" in call]) == (3, [])


def test_registry_client_rotates_its_key(started: tuple[Machine, str], browser: webdriver.Chrome) -> None:
    machine, _ = started
    browser.implicitly_wait(10)
    with machine.runs("registry-client") as address:
        keeper = Visitor(browser, address, "")
        keeper.opens("/")
        assert browser.execute_script(FAULTS) == []
        for press, event in (
            ("Charge a card", "with key-1"),
            ("Rotate the key", "Revoked key-1 at the payment service"),
            ("Charge a card", "with key-2"),
            ("Rotate the key", "Revoked key-2 at the payment service"),
        ):
            keeper.presses(press)
            keeper.reads(event)
        events = browser.find_element(By.ID, "events").text
        assert "Stored key-3 in the registry" in events
        assert "Failed" not in events
        assert "pay_" not in browser.page_source + (machine.home / "registry-client.log").read_text()
        rejected = requests.post(f"{address}/rotate", headers={"Origin": "https://evil.example"}, timeout=30)
        assert rejected.status_code == 403


def test_command_names_the_examples() -> None:
    done = subprocess.run([str(ROOT / "bin" / "example"), "other"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Usage: bin/example {b2b-saas,protected-api,registry-client}" in done.stderr

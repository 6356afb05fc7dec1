"""Runs one module of a plan: opens the addresses that it exposes, as a person does, until it ends."""

import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from selenium.common.exceptions import WebDriverException

from tests.conformance.hosted_pages import HostedPages
from tests.conformance.suite import Suite
from tests.conformance.tenants import Tenant

POLL_SECONDS = 0.5
# Longer than the longest wait of a module: half a minute before a code is used again, expired requests.
MODULE_SECONDS = 420
ENDED = frozenset({"FINISHED", "INTERRUPTED"})
# The person declines in these.
DECLINED = frozenset({"fapi2-security-profile-final-user-rejects-authentication"})
# The person leaves the first page of these and comes back.
LEFT_FIRST = frozenset({"fapi2-security-profile-final-par-ensure-reused-request-uri-prior-to-auth-completion-succeeds"})
# These ask for a screenshot of the second sign-in page, not of where the person ends.
SECOND_SIGN_IN = frozenset({"oidcc-prompt-login", "oidcc-max-age-1"})
# Entries of a log that explain a result.
TELLING = frozenset({"FAILURE", "WARNING"})


@dataclass
class Outcome:
    """The result of a module."""

    module: str
    variant: dict[str, str]
    result: str
    reasons: list[str]
    seconds: float
    screenshots: list[bytes] = field(default_factory=list)


@dataclass
class ModuleRun:
    """An instance of a module that runs; its user is new, in a browser without cookies."""

    suite: Suite
    pages: HostedPages
    tenant: Tenant
    module: dict[str, Any]
    plan_id: str
    screenshots: list[bytes] = field(default_factory=list)
    opened: int = 0

    def __post_init__(self) -> None:
        self.person = self.tenant.register()
        self.pages.forget()
        self.id = self.suite.create_module(self.plan_id, self.module)

    @property
    def name(self) -> str:
        """Return the name of the module."""
        return str(self.module["testModule"])

    def run(self) -> Outcome:
        """Run the module to its end, or for `MODULE_SECONDS`."""
        began = time.monotonic()
        configured = 0
        while (state := self.suite.state(self.id))["status"] not in ENDED:
            if time.monotonic() - began > MODULE_SECONDS:
                self.suite.cancel(self.id)
                break
            configured = configured + 1 if state["status"] == "CONFIGURED" else 0
            # Modules that start by themselves are seen in this state once at most.
            if configured == 4:
                self.suite.start(self.id)
            if state["status"] == "WAITING":
                self.visit()
            time.sleep(POLL_SECONDS)
        state = self.suite.state(self.id)
        result = str(state.get("result") or state["status"])
        seconds = round(time.monotonic() - began, 1)
        return Outcome(self.name, self.module.get("variant") or {}, result, self.reasons(), seconds, self.screenshots)

    def visit(self) -> None:
        """Open the addresses that the module exposes now."""
        for address in self.suite.addresses(self.id):
            self.opened += 1
            try:
                self.pages.open(address["url"], address["method"])
            except WebDriverException as problem:
                # The suite ends with what it has received; the log says more than a page that did not load.
                print(f"  {self.name}: {address['url']}: {problem.msg}")
            self.suite.mark_visited(self.id, address["url"])
            self.act(is_logout=urlsplit(address["url"]).path.endswith("/logout"))

    def act(self, *, is_logout: bool) -> None:
        """Do on the page what the module expects of a person, and send the screenshot that it asks for."""
        if self.name in LEFT_FIRST and self.opened == 1:
            return
        if is_logout or self.name in SECOND_SIGN_IN or not self.pages.asks_to_sign_in:
            self.send_screenshots()
        # Who has signed out is not signed in again.
        if not self.pages.finish(self.person, consents=self.name not in DECLINED, signs_in=not is_logout):
            self.send_screenshots()

    def send_screenshots(self) -> None:
        """Fill the placeholders of the module with the page."""
        if self.pages.is_back:
            return
        for placeholder in self.suite.placeholders(self.id):
            png = self.pages.screenshot()
            self.screenshots.append(png)
            self.suite.upload(self.id, placeholder["upload"], png)

    def reasons(self) -> list[str]:
        """Return why the module failed, warned or was skipped, as its log says."""
        texts = []
        for entry in self.suite.log(self.id):
            if entry.get("result") in TELLING:
                missing = entry.get("missing")
                names = f"missing {', '.join(map(str, missing))}. " if isinstance(missing, list) else ""
                texts.append(f"{entry['src']}: {names}{entry['msg']}")
            elif entry.get("result") == "SKIPPED":
                texts.append(str(entry["msg"]))
        return list(dict.fromkeys(texts))
